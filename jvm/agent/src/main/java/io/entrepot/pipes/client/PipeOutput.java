package io.entrepot.pipes.client;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * The end of a pipe that writes. It has to be closed: a program that ends before fails its importers, as a part of a
 * table must not pass for all of it.
 *
 * <pre>
 * open ── close: all of it was taken ──▶ closed
 *   ├──── abort; close out of order ───▶ closed; the importers fail
 *   └──── failure: an importer gave up ▶ failed ── close ──▶ closed; throws the failure, once
 * </pre>
 */
public final class PipeOutput extends OutputStream {
    /** Asked when the end is closed: why what was written cannot be taken for everything; null, if it can. */
    public interface CloseCheck {
        String problem();
    }

    private static final int BLOCK_BYTES = 256 << 10;

    private final PipeConnection connection;
    private final CloseCheck check;
    // The frame's length, and its data. Guarded by this, as all that follows.
    private final ByteBuffer frame = ByteBuffer.allocateDirect(4 + BLOCK_BYTES);
    private long sent;
    private boolean closed;
    private PipeException failure;

    PipeOutput(PipeConnection connection, CloseCheck check) {
        this.connection = connection;
        this.check = check;
        frame.position(4);
    }

    @Override
    public synchronized void write(int value) throws IOException {
        makeRoom();
        frame.put((byte) value);
    }

    @Override
    public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, bytes.length);
        int start = offset;
        int end = offset + length;
        while (start < end) {
            makeRoom();
            int count = Math.min(end - start, frame.remaining());
            frame.put(bytes, start, count);
            start += count;
        }
    }

    /** Write all of it, as a channel does. */
    public synchronized int write(ByteBuffer source) throws IOException {
        int count = source.remaining();
        while (source.hasRemaining()) {
            makeRoom();
            ByteBuffer part = source.duplicate();
            part.limit(part.position() + Math.min(part.remaining(), frame.remaining()));
            source.position(part.limit());
            frame.put(part);
        }
        return count;
    }

    /** How many bytes were written. */
    public synchronized long position() {
        return sent + frame.position() - 4;
    }

    public synchronized boolean isOpen() {
        return !closed;
    }

    /** Complete the data, and wait until the broker has taken all of it. Out of order: abort, and let the program go on. */
    @Override
    public synchronized void close() throws IOException {
        if (closed) {
            return;
        }
        String problem = failure == null ? check.problem() : null;
        if (problem != null) {
            abort(problem);
            return;
        }
        try (connection) {
            checkOpen();
            sendFrame();
            send(ByteBuffer.allocate(4)); // length 0: the complete end
            connection.answer();
        } finally {
            closed = true;
        }
    }

    /** Give up: the importers fail with this reason. */
    public synchronized void abort(String reason) throws IOException {
        if (closed) {
            return;
        }
        closed = true;
        try (connection) {
            byte[] text = reason.getBytes(StandardCharsets.UTF_8);
            ByteBuffer message = ByteBuffer.allocate(8 + text.length);
            message.putInt(PipeConnection.FAILURE).putInt(text.length).put(text).flip();
            connection.write(message);
        }
    }

    private void checkOpen() throws IOException {
        if (closed) {
            throw new IOException("Stream Closed");
        }
        if (failure != null) {
            throw new PipeException(failure.code(), failure.getMessage(), failure);
        }
    }

    private void makeRoom() throws IOException {
        checkOpen();
        if (!frame.hasRemaining()) {
            sendFrame();
        }
    }

    private void sendFrame() throws IOException {
        int length = frame.position() - 4;
        if (length > 0) {
            frame.putInt(0, length).flip();
            send(frame);
            frame.clear().position(4);
            sent += length;
        }
    }

    private void send(ByteBuffer data) throws IOException {
        try {
            connection.write(data);
        } catch (IOException error) {
            failure = reason(error);
            throw failure;
        }
    }

    /** Why the broker takes no more: it says so before it ends the connection. */
    private PipeException reason(IOException error) {
        try {
            connection.answer();
        } catch (PipeException said) {
            return said;
        } catch (IOException nothing) {
            error.addSuppressed(nothing);
        }
        return new PipeException(
                "StreamFailed", connection.pipe() + ": the broker takes no more data: " + error.getMessage(), error);
    }
}
