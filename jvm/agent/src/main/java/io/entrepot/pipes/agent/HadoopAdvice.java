package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.Headers;
import net.bytebuddy.asm.Advice;

/** Code that is put into classes of Hadoop and Spark. */
final class HadoopAdvice {
    private HadoopAdvice() {}

    /** The constructor of a path: {@code db://orders} is a folder, to which names of files can be appended. */
    static final class PipeIsFolder {
        @Advice.OnMethodEnter
        static void enter(@Advice.Argument(value = 0, readOnly = false) String path) {
            path = PipeNames.folder(path);
        }
    }

    static final class WriteHeader {
        @Advice.OnMethodEnter
        static void enter() {
            Headers.written();
        }
    }
}
