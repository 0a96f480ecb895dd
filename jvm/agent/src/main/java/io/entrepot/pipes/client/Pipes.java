package io.entrepot.pipes.client;

import java.io.IOException;

/** Opens ends of pipes at the broker whose socket is in ENTREPOT_PIPES_SOCKET. */
public final class Pipes {
    private Pipes() {}

    /** The end that reads; waits for the first data. */
    public static PipeInput openInput(String pipe) throws IOException {
        return openInput(System.getenv(PipeConnection.SOCKET_VARIABLE), pipe);
    }

    static PipeInput openInput(String socket, String pipe) throws IOException {
        return new PipeInput(opened(socket, pipe, "import"));
    }

    /** The end that writes. It is complete only when it was closed, and the check has nothing against it. */
    public static PipeOutput openOutput(String pipe, PipeOutput.CloseCheck check) throws IOException {
        return openOutput(System.getenv(PipeConnection.SOCKET_VARIABLE), pipe, check);
    }

    static PipeOutput openOutput(String socket, String pipe, PipeOutput.CloseCheck check) throws IOException {
        return new PipeOutput(opened(socket, pipe, "export"), check);
    }

    /** Whether somebody exports the pipe, or its data is there. */
    public static boolean exists(String pipe) throws IOException {
        return exists(System.getenv(PipeConnection.SOCKET_VARIABLE), pipe);
    }

    static boolean exists(String socket, String pipe) throws IOException {
        try (PipeConnection connection = PipeConnection.open(socket, pipe, "exists")) {
            return connection.answer().get("exists").getAsBoolean();
        }
    }

    private static PipeConnection opened(String socket, String pipe, String role) throws IOException {
        PipeConnection connection = PipeConnection.open(socket, pipe, role);
        try {
            connection.answer();
            return connection;
        } catch (PipeException error) {
            connection.close();
            PipeOpenException failed = new PipeOpenException(error.code(), error.getMessage());
            failed.initCause(error);
            throw failed;
        } catch (IOException | RuntimeException error) {
            connection.close();
            throw error;
        }
    }
}
