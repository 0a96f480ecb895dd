package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.PipeOutput;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.util.Set;

/**
 * Whether a file is closed because everything was written. Java closes files in the same way when an exception leaves
 * the block, as {@code try (var out = ...)} does; so a close is out of order if a method on the stack, which was not
 * there in that state when the file was opened, is on the way of an exception out of it. So is one by the garbage
 * collector, and one while the JVM ends.
 */
final class CloseOrder implements PipeOutput.CloseCheck {
    private static final StackWalker WALKER = StackWalker.getInstance(Set.of(StackWalker.Option.RETAIN_CLASS_REFERENCE));

    private final long unwindingBefore;

    private CloseOrder(long unwinding) {
        unwindingBefore = unwinding;
    }

    /** The check for a file that this thread opens now. */
    static CloseOrder opened() {
        return new CloseOrder(WALKER.walk(frames -> frames.filter(CloseOrder::unwinds).count()));
    }

    @Override
    public String problem() {
        if (WALKER.walk(frames -> frames.anyMatch(CloseOrder::collects))) {
            return "the program never closed the file; the garbage collector did";
        }
        if (ending()) {
            return "the file was closed only when the JVM was already ending";
        }
        return WALKER.walk(frames -> {
            StackWalker.StackFrame[] unwinding = frames.filter(CloseOrder::unwinds).toArray(StackWalker.StackFrame[]::new);
            if (unwinding.length <= unwindingBefore) {
                return null;
            }
            return "an exception left " + unwinding[0].getClassName() + "." + unwinding[0].getMethodName()
                    + " before everything was written";
        });
    }

    private static boolean unwinds(StackWalker.StackFrame frame) {
        Class<?> type = frame.getDeclaringClass();
        // The agent rewrote these: the code on the stack is not that of their class files.
        return type != FileOutputStream.class
                && type != FileInputStream.class
                && !type.getName().startsWith("sun.nio.fs.")
                && Unwinding.of(type).includes(frame.getMethodName() + frame.getDescriptor(), frame.getByteCodeIndex());
    }

    private static boolean collects(StackWalker.StackFrame frame) {
        String type = frame.getClassName();
        return type.startsWith("java.lang.ref.Finalizer") || type.startsWith("jdk.internal.ref.");
    }

    private static boolean ending() {
        Thread hook = new Thread(() -> {});
        try {
            Runtime.getRuntime().addShutdownHook(hook);
            Runtime.getRuntime().removeShutdownHook(hook);
            return false;
        } catch (IllegalStateException shuttingDown) {
            return true;
        }
    }
}
