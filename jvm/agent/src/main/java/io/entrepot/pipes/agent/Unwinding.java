package io.entrepot.pipes.agent;

import java.io.IOException;
import java.io.InputStream;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;

/**
 * Where the methods of a class are on the way of an exception out of them: at instructions that only a handler leads to,
 * and that lead only to throwing. Compilers translate {@code finally} and {@code try (...)} so. A handler that ends
 * well, such as one of EOFException that leaves a loop, is none of these places.
 */
final class Unwinding {
    private static final Unwinding NOWHERE = new Unwinding(Map.of());
    private static final ClassValue<Unwinding> CLASSES = new ClassValue<>() {
        @Override
        protected Unwinding computeValue(Class<?> type) {
            return read(type);
        }
    };

    private final Map<String, BitSet> methods;

    private Unwinding(Map<String, BitSet> methods) {
        this.methods = methods;
    }

    static Unwinding of(Class<?> type) {
        return CLASSES.get(type);
    }

    /** Whether a method, as its name and descriptor, is on that way at an instruction. */
    boolean includes(String method, int instruction) {
        BitSet places = methods.get(method);
        return places != null && instruction >= 0 && places.get(instruction);
    }

    private static Unwinding read(Class<?> type) {
        // Classes that are made at run time have no file; what they call has.
        try (InputStream file = type.getResourceAsStream("/" + type.getName().replace('.', '/') + ".class")) {
            return file == null ? NOWHERE : parse(file.readAllBytes());
        } catch (IOException | RuntimeException unreadable) {
            System.err.println("entrepot: " + type.getName() + " cannot be examined for exceptions that leave it before a"
                    + " pipe is closed: " + unreadable);
            return NOWHERE;
        }
    }

    static Unwinding parse(byte[] file) {
        // The code did not change with newer versions, which the library refuses until it knows them.
        int version = Math.min((file[6] & 0xFF) << 8 | file[7] & 0xFF, Opcodes.V21);
        file[6] = (byte) (version >> 8);
        file[7] = (byte) version;
        Map<String, BitSet> methods = new HashMap<>();
        OffsetReader reader = new OffsetReader(file);
        ClassVisitor visitor = new ClassVisitor(Opcodes.ASM9) {
            @Override
            public MethodVisitor visitMethod(
                    int access, String name, String descriptor, String signature, String[] exceptions) {
                reader.flow = new MethodFlow(places -> methods.put(name + descriptor, places));
                return reader.flow;
            }
        };
        reader.accept(visitor, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
        return new Unwinding(methods);
    }

    /** Tells a method's visitor where the instruction is that comes next. */
    private static final class OffsetReader extends ClassReader {
        private MethodFlow flow;

        OffsetReader(byte[] file) {
            super(file);
        }

        @Override
        protected void readBytecodeInstructionOffset(int offset) {
            flow.at(offset);
        }
    }
}
