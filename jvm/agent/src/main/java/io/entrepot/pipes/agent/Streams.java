package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.PipeInput;
import io.entrepot.pipes.client.PipeOpenException;
import io.entrepot.pipes.client.PipeOutput;
import io.entrepot.pipes.client.Pipes;
import java.io.Closeable;
import java.io.FileDescriptor;
import java.io.IOException;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;

/** The pipes of FileInputStream and FileOutputStream, by their descriptors, which are invalid. */
public final class Streams {
    // A stream that a program forgets is collected, and with it the connection: the broker aborts its end.
    private static final Map<FileDescriptor, Closeable> OPEN = Collections.synchronizedMap(new WeakHashMap<>());

    private Streams() {}

    /** Whether the stream is a pipe now. */
    public static boolean openInput(FileDescriptor descriptor, String path) throws IOException {
        String pipe = PipeNames.pipe(path);
        if (pipe == null) {
            return false;
        }
        OPEN.put(descriptor, Inputs.open(pipe));
        return true;
    }

    /** Whether the stream is a pipe now. */
    public static boolean openOutput(FileDescriptor descriptor, String path, boolean append) throws IOException {
        String pipe = PipeNames.pipe(path);
        if (pipe == null) {
            return false;
        }
        if (append) {
            refuseAppending(pipe);
        }
        OPEN.put(descriptor, Pipes.openOutput(pipe, CloseOrder.opened()));
        return true;
    }

    /** What would be appended to is gone: each transfer is a whole table. */
    static void refuseAppending(String pipe) throws PipeOpenException {
        throw new PipeOpenException(
                "NotSeekable",
                pipe + " is a pipe, to which nothing can be appended: let the program write all of it into one file "
                        + "that it opens once, without appending");
    }

    /** A RandomAccessFile cannot be a pipe. */
    public static void refuseRandomAccess(String path) throws IOException {
        String pipe = PipeNames.pipe(path);
        if (pipe != null) {
            throw new PipeOpenException(
                    "NotSeekable",
                    pipe + " is a pipe, which cannot be a RandomAccessFile: give this program a file, for example a "
                            + "view of the object by 'entrepot mount'");
        }
    }

    /** The pipe of a FileInputStream; null for an ordinary file, whose descriptor is valid. */
    public static PipeInput input(FileDescriptor descriptor) {
        return descriptor.valid() ? null : (PipeInput) open(descriptor, PipeInput.class);
    }

    /** The pipe of a FileOutputStream; null for an ordinary file, whose descriptor is valid. */
    public static PipeOutput output(FileDescriptor descriptor) {
        return descriptor.valid() ? null : (PipeOutput) open(descriptor, PipeOutput.class);
    }

    /** Close the pipe, if the stream is one. */
    public static void close(FileDescriptor descriptor) throws IOException {
        if (!descriptor.valid()) {
            Closeable pipe = OPEN.remove(descriptor);
            if (pipe instanceof PipeInput) {
                Inputs.close((PipeInput) pipe);
            } else if (pipe != null) {
                pipe.close();
            }
        }
    }

    private static Closeable open(FileDescriptor descriptor, Class<?> type) {
        Closeable pipe = OPEN.get(descriptor);
        return type.isInstance(pipe) ? pipe : null;
    }
}
