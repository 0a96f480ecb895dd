package io.entrepot.pipes.agent;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Set;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.bytecode.assign.Assigner;

/** Code that is put into java.io.File and the file system provider behind {@code java.nio.file.Files}. */
final class FileAdvice {
    private FileAdvice() {}

    /** Methods of File that return a boolean. */
    static final class Ask {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static int enter(@Advice.Origin("#m") String method, @Advice.FieldValue("path") String path) {
            return FileQuestions.ask(method, path);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter int answer, @Advice.Return(readOnly = false) boolean result) {
            if (answer != FileQuestions.ORDINARY) {
                result = answer == FileQuestions.YES;
            }
        }
    }

    /** length, lastModified, list: 0 and null. */
    static final class Nothing {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static boolean enter(@Advice.FieldValue("path") String path) {
            return FileQuestions.isPipe(path);
        }
    }

    static final class OpenFileChannel {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeChannel enter(@Advice.Argument(0) Path path, @Advice.Argument(1) Set<?> options)
                throws IOException {
            return PathOperations.open(path, options);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeChannel pipe, @Advice.Return(readOnly = false) FileChannel result) {
            if (pipe != null) {
                result = pipe;
            }
        }
    }

    static final class OpenByteChannel {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeChannel enter(@Advice.Argument(0) Path path, @Advice.Argument(1) Set<?> options)
                throws IOException {
            return PathOperations.open(path, options);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeChannel pipe, @Advice.Return(readOnly = false) SeekableByteChannel result) {
            if (pipe != null) {
                result = pipe;
            }
        }
    }

    static final class AskPath {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static Boolean enter(@Advice.Origin("#m") String method, @Advice.Argument(0) Path path) {
            return PathOperations.ask(method, path);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter Boolean answer, @Advice.Return(readOnly = false) boolean result) {
            if (answer != null) {
                result = answer;
            }
        }
    }

    static final class CheckAccess {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static boolean enter(@Advice.Argument(0) Path path) throws IOException {
            return PathOperations.checkAccess(path);
        }
    }

    static final class ReadAttributes {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static BasicFileAttributes enter(@Advice.Argument(0) Path path, @Advice.Argument(1) Class<?> type)
                throws IOException {
            return PathOperations.attributes(path, type);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter BasicFileAttributes attributes,
                @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC) Object result) {
            if (attributes != null) {
                result = attributes;
            }
        }
    }

    static final class Delete {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static Boolean enter(@Advice.Argument(0) Path path, @Advice.Argument(1) boolean failIfMissing)
                throws IOException {
            return PathOperations.delete(path, failIfMissing);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter Boolean answer, @Advice.Return(readOnly = false) boolean result) {
            if (answer != null) {
                result = answer;
            }
        }
    }

    static final class Refuse {
        @Advice.OnMethodEnter
        static void enter(
                @Advice.Origin("#m") String method, @Advice.Argument(0) Path source, @Advice.Argument(1) Path target)
                throws IOException {
            PathOperations.refuse(method, source, target);
        }
    }

    static final class RefuseListing {
        @Advice.OnMethodEnter
        static void enter(@Advice.Argument(0) Path path) throws IOException {
            PathOperations.refuseListing(path);
        }
    }

    static final class RefuseDirectory {
        @Advice.OnMethodEnter
        static void enter(@Advice.Argument(0) Path path) throws IOException {
            PathOperations.refuseDirectory(path);
        }
    }
}
