package io.entrepot.pipes.client;

import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

/** A connection to the broker: lines of JSON, and raw bytes. For one thread at a time. */
final class PipeConnection implements Closeable {
    static final String SOCKET_VARIABLE = "ENTREPOT_PIPES_SOCKET";
    static final int FAILURE = 0xFFFFFFFF;
    static final int MAX_LINE_BYTES = 64 << 10;
    static final int MAX_FRAME_BYTES = 16 << 20;

    private final SocketChannel channel;
    private final String pipe;

    private PipeConnection(SocketChannel channel, String pipe) {
        this.channel = channel;
        this.pipe = pipe;
    }

    /** Connect to the broker, and send a request. */
    static PipeConnection open(String socket, String pipe, String role) throws PipeOpenException {
        try {
            SocketChannel channel = SocketChannel.open(address(socket));
            PipeConnection connection = new PipeConnection(channel, pipe);
            try {
                connection.sendLine(request(pipe, role));
                return connection;
            } catch (IOException error) {
                channel.close();
                throw error;
            }
        } catch (PipeOpenException error) {
            throw error;
        } catch (IOException | RuntimeException error) {
            PipeOpenException failed = new PipeOpenException(
                    "BrokerUnavailable",
                    pipe + ": the broker's socket " + socket + " cannot be reached (" + error.getMessage()
                            + "): is 'entrepot pipe run', which started this program, still running?");
            failed.initCause(error);
            throw failed;
        }
    }

    private static SocketAddress address(String socket) throws PipeOpenException {
        if (socket == null || socket.isEmpty()) {
            throw new PipeOpenException(
                    "BrokerUnavailable",
                    SOCKET_VARIABLE + " is not set: start the program with 'entrepot pipe run -- PROGRAM ...'");
        }
        try {
            // By reflection, because the class is compiled for Java 11.
            Class<?> type = Class.forName("java.net.UnixDomainSocketAddress");
            return (SocketAddress) type.getMethod("of", String.class).invoke(null, socket);
        } catch (ReflectiveOperationException error) {
            throw new PipeOpenException(
                    "UnsupportedJava",
                    "pipes need Java 16 or later, which has Unix sockets; this is Java "
                            + System.getProperty("java.version"));
        }
    }

    private static JsonObject request(String pipe, String role) {
        JsonObject request = new JsonObject();
        request.addProperty("protocol", 1);
        request.addProperty("pipe", pipe);
        request.addProperty("role", role);
        request.addProperty("form", "text");
        request.addProperty("program", programName());
        request.addProperty("pid", ProcessHandle.current().pid());
        Engines.Caller caller = role.equals("exists") ? null : Engines.caller();
        if (caller != null) {
            request.addProperty("engine", caller.engine.name().toLowerCase(Locale.ROOT));
            request.addProperty("engine_version", caller.version());
        }
        return request;
    }

    private static String programName() {
        // The main class or jar, and its arguments, which may be secret.
        String command = System.getProperty("sun.java.command", "").trim();
        int end = command.indexOf(' ');
        String name = end < 0 ? command : command.substring(0, end);
        return name.isEmpty() ? "java" : "java " + name.substring(0, Math.min(name.length(), 200));
    }

    private void sendLine(JsonObject line) throws IOException {
        write(ByteBuffer.wrap((line + "\n").getBytes(StandardCharsets.UTF_8)));
    }

    /** The broker's answer; throws if it is an error. */
    JsonObject answer() throws IOException {
        JsonObject answer = readLine();
        if (answer.has("ok") && answer.get("ok").getAsBoolean()) {
            return answer;
        }
        String code = answer.has("error") ? answer.get("error").getAsString() : "Unknown";
        String message = answer.has("message") ? answer.get("message").getAsString() : "the broker gave no reason";
        throw new PipeException(code, pipe + ": " + message);
    }

    private JsonObject readLine() throws IOException {
        ByteBuffer line = ByteBuffer.allocate(MAX_LINE_BYTES);
        ByteBuffer one = ByteBuffer.allocate(1); // what follows the line belongs to the first frame
        while (true) {
            one.clear();
            readFully(one);
            byte next = one.get(0);
            if (next == '\n') {
                break;
            }
            if (!line.hasRemaining()) {
                throw new PipeException("ProtocolError", pipe + ": the broker's answer is too long");
            }
            line.put(next);
        }
        try {
            return JsonParser.parseString(new String(line.array(), 0, line.position(), StandardCharsets.UTF_8))
                    .getAsJsonObject();
        } catch (JsonParseException | IllegalStateException error) {
            throw new PipeException("ProtocolError", pipe + ": the broker's answer is no JSON object", error);
        }
    }

    /** Fill the buffer. */
    void readFully(ByteBuffer buffer) throws IOException {
        while (buffer.hasRemaining()) {
            if (channel.read(buffer) < 0) {
                throw new PipeException(
                        "StreamFailed",
                        pipe + ": the broker ended the connection before the end of the data: 'entrepot pipe run' "
                                + "ended or failed",
                        new EOFException());
            }
        }
    }

    void write(ByteBuffer buffer) throws IOException {
        while (buffer.hasRemaining()) {
            channel.write(buffer);
        }
    }

    String pipe() {
        return pipe;
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}
