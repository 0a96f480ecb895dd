package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.PipeInput;
import io.entrepot.pipes.client.PipeOutput;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import net.bytebuddy.asm.Advice;

/** Code that is put into FileInputStream, FileOutputStream and RandomAccessFile. An entry that returns a pipe skips
 * the method itself. */
final class StreamAdvice {
    private StreamAdvice() {}

    static final class OpenInput {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static boolean enter(@Advice.FieldValue("fd") FileDescriptor fd, @Advice.Argument(0) String path)
                throws IOException {
            return Streams.openInput(fd, path);
        }
    }

    static final class OpenOutput {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static boolean enter(
                @Advice.FieldValue("fd") FileDescriptor fd,
                @Advice.Argument(0) String path,
                @Advice.Argument(1) boolean append)
                throws IOException {
            return Streams.openOutput(fd, path, append);
        }
    }

    static final class OpenRandomAccess {
        @Advice.OnMethodEnter
        static void enter(@Advice.Argument(0) String path) throws IOException {
            Streams.refuseRandomAccess(path);
        }
    }

    static final class Close {
        @Advice.OnMethodEnter
        static void enter(@Advice.FieldValue("fd") FileDescriptor fd) throws IOException {
            Streams.close(fd);
        }
    }

    static final class Read {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeInput pipe, @Advice.Return(readOnly = false) int result)
                throws IOException {
            if (pipe != null) {
                result = pipe.read();
            }
        }
    }

    static final class ReadArray {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter PipeInput pipe,
                @Advice.Argument(0) byte[] bytes,
                @Advice.Return(readOnly = false) int result)
                throws IOException {
            if (pipe != null) {
                result = pipe.read(bytes, 0, bytes.length);
            }
        }
    }

    static final class ReadPart {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter PipeInput pipe,
                @Advice.Argument(0) byte[] bytes,
                @Advice.Argument(1) int offset,
                @Advice.Argument(2) int length,
                @Advice.Return(readOnly = false) int result)
                throws IOException {
            if (pipe != null) {
                result = pipe.read(bytes, offset, length);
            }
        }
    }

    static final class ReadAll {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeInput pipe, @Advice.Return(readOnly = false) byte[] result)
                throws IOException {
            if (pipe != null) {
                result = pipe.readAllBytes();
            }
        }
    }

    static final class ReadSome {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter PipeInput pipe,
                @Advice.Argument(0) int length,
                @Advice.Return(readOnly = false) byte[] result)
                throws IOException {
            if (pipe != null) {
                result = pipe.readNBytes(length);
            }
        }
    }

    static final class TransferTo {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter PipeInput pipe,
                @Advice.Argument(0) OutputStream target,
                @Advice.Return(readOnly = false) long result)
                throws IOException {
            if (pipe != null) {
                result = pipe.transferTo(target);
            }
        }
    }

    static final class Skip {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter PipeInput pipe,
                @Advice.Argument(0) long count,
                @Advice.Return(readOnly = false) long result)
                throws IOException {
            if (pipe != null) {
                result = pipe.skip(count);
            }
        }
    }

    static final class Available {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeInput pipe, @Advice.Return(readOnly = false) int result)
                throws IOException {
            if (pipe != null) {
                result = pipe.available();
            }
        }
    }

    static final class InputChannel {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeInput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.input(fd);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeInput pipe, @Advice.Return(readOnly = false) FileChannel result) {
            if (pipe != null) {
                result = new PipeChannel(pipe);
            }
        }
    }

    static final class OutputChannel {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeOutput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.output(fd);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeOutput pipe, @Advice.Return(readOnly = false) FileChannel result) {
            if (pipe != null) {
                result = new PipeChannel(pipe);
            }
        }
    }

    static final class Write {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeOutput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.output(fd);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeOutput pipe, @Advice.Argument(0) int value) throws IOException {
            if (pipe != null) {
                pipe.write(value);
            }
        }
    }

    static final class WriteArray {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeOutput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.output(fd);
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Enter PipeOutput pipe, @Advice.Argument(0) byte[] bytes) throws IOException {
            if (pipe != null) {
                pipe.write(bytes, 0, bytes.length);
            }
        }
    }

    static final class WritePart {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static PipeOutput enter(@Advice.FieldValue("fd") FileDescriptor fd) {
            return Streams.output(fd);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter PipeOutput pipe,
                @Advice.Argument(0) byte[] bytes,
                @Advice.Argument(1) int offset,
                @Advice.Argument(2) int length)
                throws IOException {
            if (pipe != null) {
                pipe.write(bytes, offset, length);
            }
        }
    }
}
