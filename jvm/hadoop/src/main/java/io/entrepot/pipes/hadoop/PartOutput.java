package io.entrepot.pipes.hadoop;

import io.entrepot.pipes.client.Headers;
import java.io.IOException;
import java.io.OutputStream;

/**
 * What a task writes into one of its files. If several of them become one text, each but the first leaves out its
 * header: the program says, through {@link Headers}, that it writes one.
 */
final class PartOutput extends OutputStream {
    /** Where the bytes go. */
    interface Target {
        void write(byte[] bytes, int offset, int length) throws IOException;

        /** The file was closed. */
        void close() throws IOException;
    }

    private final Target target;
    private final boolean first;
    private boolean header;
    private boolean quoted; // within quotes, of the header
    private boolean closed;
    private long written;

    PartOutput(Target target, boolean first) {
        this.target = target;
        this.first = first;
        Headers.expect(() -> header = true);
    }

    @Override
    public void write(int value) throws IOException {
        write(new byte[] {(byte) value}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
        if (closed) {
            throw new IOException("Stream Closed");
        }
        int start = header && !first ? afterHeader(bytes, offset, length) : offset;
        if (start < offset + length) {
            target.write(bytes, start, offset + length - start);
            written += offset + length - start;
        }
    }

    long written() {
        return written;
    }

    @Override
    public void close() throws IOException {
        if (!closed) {
            closed = true;
            target.close();
        }
    }

    private int afterHeader(byte[] bytes, int offset, int length) {
        for (int at = offset; at < offset + length; at++) {
            if (bytes[at] == '"') {
                quoted = !quoted;
            } else if (bytes[at] == '\n' && !quoted) {
                header = false;
                return at + 1;
            }
        }
        return offset + length;
    }
}
