package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.PipeException;
import io.entrepot.pipes.client.PipeInput;
import io.entrepot.pipes.client.PipeOutput;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.NonReadableChannelException;
import java.nio.channels.NonWritableChannelException;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;

/** A pipe as a FileChannel. It has no size, no locks, and no way back beyond what its reader keeps. */
public final class PipeChannel extends FileChannel {
    private static final int COPIED_BYTES = 64 << 10;

    private final PipeInput input; // null, if it writes
    private final PipeOutput output; // null, if it reads

    public PipeChannel(PipeInput input) {
        this.input = input;
        this.output = null;
    }

    public PipeChannel(PipeOutput output) {
        this.input = null;
        this.output = output;
    }

    @Override
    public int read(ByteBuffer target) throws IOException {
        return input().read(target);
    }

    @Override
    public long read(ByteBuffer[] targets, int offset, int length) throws IOException {
        for (int index = offset; index < offset + length; index++) {
            if (targets[index].hasRemaining()) {
                return input().read(targets[index]);
            }
        }
        return 0;
    }

    @Override
    public int read(ByteBuffer target, long position) throws IOException {
        long now = input().position();
        input().seek(position);
        int count = input().read(target);
        input().seek(now);
        return count;
    }

    @Override
    public int write(ByteBuffer source) throws IOException {
        return output().write(source);
    }

    @Override
    public long write(ByteBuffer[] sources, int offset, int length) throws IOException {
        long count = 0;
        for (int index = offset; index < offset + length; index++) {
            count += output().write(sources[index]);
        }
        return count;
    }

    @Override
    public int write(ByteBuffer source, long position) throws IOException {
        checkAppends(position);
        return output().write(source);
    }

    @Override
    public long position() {
        return input != null ? input.position() : output.position();
    }

    @Override
    public FileChannel position(long position) throws IOException {
        if (input != null) {
            input.seek(position);
        } else {
            checkAppends(position);
        }
        return this;
    }

    /** What was written, or what was read so far and is known to follow: programs read until the end, not the size. */
    @Override
    public long size() throws IOException {
        return input != null ? input.position() + input.available() : output.position();
    }

    @Override
    public FileChannel truncate(long size) throws IOException {
        if (output().position() > size) {
            throw refused("be truncated");
        }
        return this;
    }

    /** Nothing: data is safe with the importer once the pipe was closed. */
    @Override
    public void force(boolean metadata) {}

    @Override
    public long transferTo(long position, long count, WritableByteChannel target) throws IOException {
        input().seek(position);
        return copy(this, count, target);
    }

    @Override
    public long transferFrom(ReadableByteChannel source, long position, long count) throws IOException {
        checkAppends(position);
        return copy(source, count, this);
    }

    private static long copy(ReadableByteChannel source, long count, WritableByteChannel target) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(COPIED_BYTES);
        long copied = 0;
        while (copied < count) {
            buffer.clear().limit((int) Math.min(buffer.capacity(), count - copied));
            int read = source.read(buffer);
            if (read <= 0) {
                break;
            }
            buffer.flip();
            while (buffer.hasRemaining()) {
                target.write(buffer);
            }
            copied += read;
        }
        return copied;
    }

    @Override
    public MappedByteBuffer map(MapMode mode, long position, long size) throws IOException {
        throw refused("be mapped into memory");
    }

    @Override
    public FileLock lock(long position, long size, boolean shared) throws IOException {
        throw refused("be locked");
    }

    @Override
    public FileLock tryLock(long position, long size, boolean shared) throws IOException {
        throw refused("be locked");
    }

    @Override
    protected void implCloseChannel() throws IOException {
        if (input != null) {
            Inputs.close(input);
        } else {
            output.close();
        }
    }

    private PipeInput input() {
        if (input == null) {
            throw new NonReadableChannelException();
        }
        return input;
    }

    private PipeOutput output() {
        if (output == null) {
            throw new NonWritableChannelException();
        }
        return output;
    }

    private void checkAppends(long position) throws IOException {
        if (position != output().position()) {
            throw refused("be written at byte " + position + " after byte " + output.position());
        }
    }

    private static PipeException refused(String what) {
        return new PipeException("NotSeekable", "a pipe cannot " + what);
    }
}
