package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.PipeException;
import io.entrepot.pipes.client.Pipes;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Set;

/** What the file system provider does for {@code java.nio.file.Files}, done for pipes. Null: the path is no pipe. */
public final class PathOperations {
    private PathOperations() {}

    /** newFileChannel and newByteChannel. */
    public static PipeChannel open(Path path, Set<?> options) throws IOException {
        String pipe = PipeNames.pipe(path.toString());
        if (pipe == null) {
            return null;
        }
        if (options.contains(StandardOpenOption.APPEND)) {
            Streams.refuseAppending(pipe);
        }
        boolean writes = options.contains(StandardOpenOption.WRITE);
        if (writes && options.contains(StandardOpenOption.READ)) {
            throw new PipeException("NotSeekable", pipe + " is a pipe: it cannot be opened for reading and writing");
        }
        return writes
                ? new PipeChannel(Pipes.openOutput(pipe, CloseOrder.opened()))
                : new PipeChannel(Inputs.open(pipe));
    }

    /** exists, isRegularFile, isDirectory. */
    public static Boolean ask(String method, Path path) {
        int answer = FileQuestions.ask(method.equals("isRegularFile") ? "isFile" : method, path.toString());
        return answer == FileQuestions.ORDINARY ? null : answer == FileQuestions.YES;
    }

    /** checkAccess: whether a pipe is there. */
    public static boolean checkAccess(Path path) throws IOException {
        return attributes(path, BasicFileAttributes.class) != null;
    }

    /** readAttributes. */
    public static BasicFileAttributes attributes(Path path, Class<?> type) throws IOException {
        if (PipeNames.isFolder(path.toString())) {
            return new FileQuestions.Attributes(true);
        }
        String pipe = PipeNames.pipe(path.toString());
        if (pipe == null) {
            return null;
        }
        if (type != BasicFileAttributes.class) {
            throw new UnsupportedOperationException(pipe + " is a pipe: it has no " + type.getSimpleName());
        }
        if (!Pipes.exists(pipe)) {
            throw new NoSuchFileException(path.toString(), null, "nobody exports this pipe yet");
        }
        return new FileQuestions.Attributes(false);
    }

    /** implDelete: whether the path is a pipe, which is left to its exporter. */
    public static Boolean delete(Path path, boolean failIfMissing) throws IOException {
        String pipe = PipeNames.pipe(path.toString());
        if (pipe == null) {
            return null;
        }
        boolean exists = Pipes.exists(pipe);
        if (!exists && failIfMissing) {
            throw new NoSuchFileException(path.toString(), null, "nobody exports this pipe");
        }
        return exists;
    }

    /** move and copy: neither is possible with a pipe. */
    public static void refuse(String method, Path source, Path target) throws IOException {
        for (Path path : new Path[] {source, target}) {
            String pipe = PipeNames.pipe(path.toString());
            if (pipe != null) {
                throw new PipeException("NotSeekable", pipe + " is a pipe: Files." + method + " cannot be used with it");
            }
        }
    }

    /** newDirectoryStream: a pipe has nothing in it. */
    public static void refuseListing(Path path) throws IOException {
        if (PipeNames.pipe(path.toString()) != null) {
            throw new NotDirectoryException(path.toString());
        }
    }

    /** createDirectory: the folder that pipes seem to be in need not be made. */
    public static void refuseDirectory(Path path) throws IOException {
        if (PipeNames.isFolder(path.toString()) || PipeNames.pipe(path.toString()) != null) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }
}
