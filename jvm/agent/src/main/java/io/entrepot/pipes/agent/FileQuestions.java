package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.Pipes;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;

/** What programs ask about files, answered for pipes. A pipe exists while somebody exports it. */
public final class FileQuestions {
    /** Answers; ORDINARY means that the path is no pipe. */
    public static final int ORDINARY = 0;

    public static final int NO = 1;
    public static final int YES = 2;

    private FileQuestions() {}

    /** The answer of a method of java.io.File that returns a boolean. */
    public static int ask(String method, String path) {
        if (PipeNames.isFolder(path)) {
            return answer(method.equals("exists") || method.equals("isDirectory") || method.equals("canWrite"));
        }
        String pipe = PipeNames.pipe(path);
        if (pipe == null) {
            return ORDINARY;
        }
        switch (method) {
            case "isDirectory":
            case "renameTo":
            case "mkdir":
                return NO;
            case "canWrite":
                return YES;
            case "createNewFile":
                return answer(!exists(pipe));
            default: // exists, isFile, canRead; delete, which leaves the pipe to its exporter
                return answer(exists(pipe));
        }
    }

    /** Whether a File is a pipe, whose length and time of change are 0, and which has no files in it. */
    public static boolean isPipe(String path) {
        return PipeNames.pipe(path) != null;
    }

    static boolean exists(String pipe) {
        try {
            return Pipes.exists(pipe);
        } catch (IOException error) {
            throw new UncheckedIOException(error); // "no" would be an answer
        }
    }

    private static int answer(boolean yes) {
        return yes ? YES : NO;
    }

    /** The attributes of a pipe, or of the folder that pipes seem to be in. */
    static final class Attributes implements BasicFileAttributes {
        private static final FileTime TIME = FileTime.fromMillis(0);
        private final boolean folder;

        Attributes(boolean folder) {
            this.folder = folder;
        }

        @Override
        public FileTime lastModifiedTime() {
            return TIME;
        }

        @Override
        public FileTime lastAccessTime() {
            return TIME;
        }

        @Override
        public FileTime creationTime() {
            return TIME;
        }

        @Override
        public boolean isRegularFile() {
            return !folder;
        }

        @Override
        public boolean isDirectory() {
            return folder;
        }

        @Override
        public boolean isSymbolicLink() {
            return false;
        }

        @Override
        public boolean isOther() {
            return false;
        }

        @Override
        public long size() {
            return 0;
        }

        @Override
        public Object fileKey() {
            return null;
        }
    }
}
