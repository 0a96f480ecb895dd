package io.entrepot.pipes.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * The end of a pipe that reads. The beginning is kept until a program has read more than a MiB, and after that the last
 * 64 KiB: a program may go back, as those do that look at a file's beginning first. A broken pipe is a
 * {@link PipeException}, again and again.
 *
 * <pre>
 * open ── frame of length 0 ──▶ at its end ──┐
 *   ├──── failure ──────────▶ failed ────────┴─ close ──▶ closed
 *   ├──── close: the reader gave up ─────────────────────▲
 *   └──── restart: another PipeInput goes on at byte 0 ──┘
 * </pre>
 */
public final class PipeInput extends InputStream {
    /** How far a reader may go back, once it has read more than the beginning. */
    public static final int REWIND_BYTES = 64 << 10;

    /** How much of the beginning is kept. */
    public static final int BEGINNING_BYTES = 1 << 20;

    private static final int BLOCK_BYTES = 256 << 10;

    private final PipeConnection connection;
    // What was read and is kept, then what is to be read. Guarded by this, as all that follows.
    private ByteBuffer block;
    private long blockStart; // where in the data the block starts
    private int frameLeft; // bytes of the frame that are not in the block
    private boolean ended;
    private boolean endSeen; // the program was told of the end
    private boolean closed;
    private IOException failure;
    private long mark = -1;

    PipeInput(PipeConnection connection) {
        this.connection = connection;
        block = ByteBuffer.allocateDirect(REWIND_BYTES + BLOCK_BYTES).limit(0);
    }

    private PipeInput(PipeInput former) {
        connection = former.connection;
        block = former.block.position(0);
        frameLeft = former.frameLeft;
        ended = former.ended;
    }

    /**
     * Close this one, and give its place to another one that begins at byte 0; null, and nothing is done, if the beginning
     * is not kept any more, or the program has seen the end, or the pipe broke.
     */
    public synchronized PipeInput restart() {
        if (closed || endSeen || failure != null || blockStart > 0) {
            return null;
        }
        closed = true;
        return new PipeInput(this);
    }

    @Override
    public synchronized int read() throws IOException {
        return fill() ? block.get() & 0xFF : -1;
    }

    @Override
    public synchronized int read(byte[] bytes, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, bytes.length);
        if (length == 0) {
            return 0;
        }
        if (!fill()) {
            return -1;
        }
        int count = Math.min(length, block.remaining());
        block.get(bytes, offset, count);
        return count;
    }

    /** Read some bytes, as a channel does. */
    public synchronized int read(ByteBuffer target) throws IOException {
        if (!target.hasRemaining()) {
            return 0;
        }
        if (!fill()) {
            return -1;
        }
        int count = Math.min(target.remaining(), block.remaining());
        ByteBuffer part = block.duplicate();
        part.limit(block.position() + count);
        target.put(part);
        block.position(block.position() + count);
        return count;
    }

    /** Skip forward; or, if negative, back by at most {@link #REWIND_BYTES}. */
    @Override
    public synchronized long skip(long count) throws IOException {
        if (count < 0) {
            seek(position() + count);
            return count;
        }
        long left = count;
        while (left > 0 && fill()) {
            int step = (int) Math.min(left, block.remaining());
            block.position(block.position() + step);
            left -= step;
        }
        return count - left;
    }

    /** How many bytes are before the next one. */
    public synchronized long position() {
        return blockStart + block.position();
    }

    /** Continue elsewhere: anywhere later, or not far before. */
    public synchronized void seek(long position) throws IOException {
        checkOpen();
        if (position < 0 || position < blockStart) {
            throw new PipeException(
                    "NotSeekable",
                    connection.pipe() + " is a pipe: it cannot go back to byte " + position + " from " + position()
                            + ", because only the first " + BEGINNING_BYTES + " bytes are kept until it has read more, "
                            + "and then the last " + REWIND_BYTES);
        }
        if (position <= blockStart + block.limit()) {
            block.position((int) (position - blockStart));
        } else {
            skip(position - position());
        }
    }

    @Override
    public synchronized int available() throws IOException {
        checkOpen();
        return block.remaining();
    }

    @Override
    public boolean markSupported() {
        return true;
    }

    @Override
    public synchronized void mark(int limit) {
        mark = position();
    }

    @Override
    public synchronized void reset() throws IOException {
        if (mark < 0) {
            throw new PipeException("NotSeekable", connection.pipe() + ": nothing was marked");
        }
        seek(mark);
    }

    @Override
    public synchronized void close() throws IOException {
        if (!closed) {
            closed = true;
            connection.close();
        }
    }

    public synchronized boolean isOpen() {
        return !closed;
    }

    /** Its name, as {@code db://orders}. */
    public String pipe() {
        return connection.pipe();
    }

    private void checkOpen() throws IOException {
        if (closed) {
            throw new IOException("Stream Closed");
        }
    }

    /** Whether there is a next byte, in the block. */
    private boolean fill() throws IOException {
        checkOpen();
        if (block.hasRemaining()) {
            return true;
        }
        if (failure != null) {
            throw new PipeException("StreamFailed", failure.getMessage(), failure);
        }
        if (ended) {
            endSeen = true;
            return false;
        }
        try {
            if (frameLeft == 0) {
                nextFrame();
            }
            if (!ended) {
                receive();
            }
        } catch (IOException error) {
            failure = error;
            throw error;
        }
        endSeen = ended;
        return !ended;
    }

    private void nextFrame() throws IOException {
        int length = readLength();
        if (length == PipeConnection.FAILURE) {
            int bytes = Math.max(0, Math.min(readLength(), PipeConnection.MAX_LINE_BYTES));
            ByteBuffer text = ByteBuffer.allocate(bytes);
            connection.readFully(text);
            String reason = new String(text.array(), StandardCharsets.UTF_8);
            throw new PipeException("StreamFailed", connection.pipe() + ": " + reason);
        }
        if (length < 0 || length > PipeConnection.MAX_FRAME_BYTES) {
            throw new PipeException("ProtocolError", connection.pipe() + ": the broker sent a frame that is too long");
        }
        ended = length == 0;
        frameLeft = length;
    }

    private int readLength() throws IOException {
        ByteBuffer length = ByteBuffer.allocate(4);
        connection.readFully(length);
        return length.getInt(0);
    }

    private void receive() throws IOException {
        boolean beginning = blockStart == 0 && block.position() <= BEGINNING_BYTES;
        int kept = beginning ? block.position() : Math.min(REWIND_BYTES, block.position());
        if (kept + BLOCK_BYTES > block.capacity()) {
            int larger = Math.min(BEGINNING_BYTES + BLOCK_BYTES, 2 * (kept + BLOCK_BYTES));
            block = ByteBuffer.allocateDirect(larger).put(block.flip());
        }
        blockStart += block.position() - kept;
        block.position(block.position() - kept);
        block.compact(); // now it begins with the kept bytes
        int count = Math.min(frameLeft, block.capacity() - kept);
        block.position(kept).limit(kept + count);
        try {
            connection.readFully(block);
        } catch (IOException error) {
            block.position(kept).limit(kept);
            throw error;
        }
        frameLeft -= count;
        block.position(kept);
    }
}
