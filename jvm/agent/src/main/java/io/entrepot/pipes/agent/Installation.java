package io.entrepot.pipes.agent;

import static net.bytebuddy.matcher.ElementMatchers.isConstructor;
import static net.bytebuddy.matcher.ElementMatchers.isNative;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.none;
import static net.bytebuddy.matcher.ElementMatchers.not;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;
import static net.bytebuddy.matcher.ElementMatchers.takesArguments;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.RandomAccessFile;
import java.lang.instrument.Instrumentation;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.Set;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.agent.builder.ResettableClassFileTransformer;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.asm.AsmVisitorWrapper;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.matcher.ElementMatcher;
import net.bytebuddy.utility.JavaModule;

/** Puts the advice into the classes of java.base. Without a broker in the environment, it leaves them alone. */
public final class Installation {
    private static final ClassFileLocator LOCATOR = ClassFileLocator.ForClassLoader.ofSystemLoader();
    private static final String PROVIDER = "sun.nio.fs.UnixFileSystemProvider";

    private Installation() {}

    public static void install(Instrumentation instrumentation) throws ReflectiveOperationException {
        if (System.getenv("ENTREPOT_PIPES_SOCKET") == null) {
            return;
        }
        // Byte Buddy refuses class files of a Java that is newer than itself, and the JVM would not start. The build puts
        // its other package name into this string too. To be set before Byte Buddy is loaded.
        System.setProperty("net.bytebuddy.experimental", "true");
        // Loads and initializes what the advice needs, before anything is rewritten.
        PipeNames.pipe("/");
        Class.forName(Streams.class.getName());
        Class.forName(PathOperations.class.getName());
        Class.forName(FileQuestions.class.getName());
        Class.forName(Inputs.class.getName());
        CloseOrder.opened();
        FileSystems.getDefault();

        FirstFailure failures = new FirstFailure();
        ResettableClassFileTransformer transformer = new AgentBuilder.Default()
                .disableClassFormatChanges()
                .with(AgentBuilder.RedefinitionStrategy.RETRANSFORMATION)
                .with(AgentBuilder.InitializationStrategy.NoOp.INSTANCE)
                .with(AgentBuilder.TypeStrategy.Default.REDEFINE)
                .with(failures)
                .ignore(none())
                .type(named(FileInputStream.class.getName()))
                .transform((builder, type, loader, module, domain) -> input(builder))
                .type(named(FileOutputStream.class.getName()))
                .transform((builder, type, loader, module, domain) -> output(builder))
                .type(named(RandomAccessFile.class.getName()))
                .transform((builder, type, loader, module, domain) ->
                        builder.visit(on(named("open").and(takesArguments(String.class, int.class)),
                                StreamAdvice.OpenRandomAccess.class)))
                .type(named(File.class.getName()))
                .transform((builder, type, loader, module, domain) -> file(builder))
                .type(named(PROVIDER))
                .transform((builder, type, loader, module, domain) -> provider(builder))
                .type(named("org.apache.hadoop.fs.Path"))
                .transform((builder, type, loader, module, domain) -> builder.visit(
                        on(isConstructor().and(takesArguments(String.class)), HadoopAdvice.PipeIsFolder.class)))
                .type(named("org.apache.spark.sql.catalyst.csv.UnivocityGenerator"))
                .transform((builder, type, loader, module, domain) ->
                        builder.visit(on(named("writeHeaders"), HadoopAdvice.WriteHeader.class)))
                .installOn(instrumentation);
        try {
            failures.report();
        } catch (IllegalStateException failed) {
            transformer.reset(instrumentation, AgentBuilder.RedefinitionStrategy.RETRANSFORMATION);
            throw failed;
        }
    }

    private static DynamicType.Builder<?> input(DynamicType.Builder<?> builder) {
        return builder.visit(on(named("open").and(takesArguments(String.class)), StreamAdvice.OpenInput.class))
                .visit(on(named("close").and(takesArguments(0)), StreamAdvice.Close.class))
                .visit(on(named("read").and(takesArguments(0)), StreamAdvice.Read.class))
                .visit(on(named("read").and(takesArguments(byte[].class)), StreamAdvice.ReadArray.class))
                .visit(on(named("read").and(takesArguments(byte[].class, int.class, int.class)),
                        StreamAdvice.ReadPart.class))
                .visit(on(named("readAllBytes").and(takesArguments(0)), StreamAdvice.ReadAll.class))
                .visit(on(named("readNBytes").and(takesArguments(int.class)), StreamAdvice.ReadSome.class))
                .visit(on(named("transferTo").and(takesArguments(1)), StreamAdvice.TransferTo.class))
                .visit(on(named("skip").and(takesArguments(long.class)), StreamAdvice.Skip.class))
                .visit(on(named("available").and(takesArguments(0)), StreamAdvice.Available.class))
                .visit(on(named("getChannel").and(takesArguments(0)), StreamAdvice.InputChannel.class));
    }

    private static DynamicType.Builder<?> output(DynamicType.Builder<?> builder) {
        return builder.visit(on(named("open").and(takesArguments(String.class, boolean.class)),
                        StreamAdvice.OpenOutput.class))
                .visit(on(named("close").and(takesArguments(0)), StreamAdvice.Close.class))
                .visit(on(named("write").and(takesArguments(int.class)), StreamAdvice.Write.class))
                .visit(on(named("write").and(takesArguments(byte[].class)), StreamAdvice.WriteArray.class))
                .visit(on(named("write").and(takesArguments(byte[].class, int.class, int.class)),
                        StreamAdvice.WritePart.class))
                .visit(on(named("getChannel").and(takesArguments(0)), StreamAdvice.OutputChannel.class));
    }

    private static DynamicType.Builder<?> file(DynamicType.Builder<?> builder) {
        ElementMatcher.Junction<MethodDescription> questions =
                namedOneOf("exists", "isFile", "isDirectory", "canRead", "canWrite", "delete", "createNewFile", "mkdir");
        return builder.visit(on(questions.and(takesArguments(0)), FileAdvice.Ask.class))
                .visit(on(named("renameTo").and(takesArguments(File.class)), FileAdvice.Ask.class))
                .visit(on(namedOneOf("length", "lastModified", "list").and(takesArguments(0)),
                        FileAdvice.Nothing.class));
    }

    private static DynamicType.Builder<?> provider(DynamicType.Builder<?> builder) {
        ElementMatcher.Junction<MethodDescription> first = takesArgument(0, Path.class);
        ElementMatcher.Junction<MethodDescription> opens = first.and(takesArgument(1, Set.class));
        return builder.visit(on(named("newFileChannel").and(opens), FileAdvice.OpenFileChannel.class))
                .visit(on(named("newByteChannel").and(opens), FileAdvice.OpenByteChannel.class))
                .visit(on(namedOneOf("exists", "isDirectory", "isRegularFile").and(first), FileAdvice.AskPath.class))
                .visit(on(named("checkAccess").and(first), FileAdvice.CheckAccess.class))
                .visit(on(named("readAttributes").and(first).and(takesArgument(1, Class.class)),
                        FileAdvice.ReadAttributes.class))
                .visit(on(named("implDelete").and(takesArguments(Path.class, boolean.class)), FileAdvice.Delete.class))
                .visit(on(namedOneOf("move", "copy").and(first).and(takesArgument(1, Path.class)),
                        FileAdvice.Refuse.class))
                .visit(on(named("newDirectoryStream").and(first), FileAdvice.RefuseListing.class))
                .visit(on(named("createDirectory").and(first), FileAdvice.RefuseDirectory.class));
    }

    private static AsmVisitorWrapper on(ElementMatcher<? super MethodDescription> methods, Class<?> advice) {
        ElementMatcher.Junction<MethodDescription> written = not(isNative());
        return Advice.to(TypeDescription.ForLoadedType.of(advice), LOCATOR).on(written.and(methods));
    }

    /** Byte Buddy goes on after a class that it could not rewrite; a program should know. */
    private static final class FirstFailure extends AgentBuilder.Listener.Adapter {
        private Throwable failure; // guarded by this
        private String type;
        private boolean reported;

        @Override
        public synchronized void onError(
                String typeName, ClassLoader loader, JavaModule module, boolean loaded, Throwable error) {
            if (reported) { // of a library, which is loaded later
                System.err.println("entrepot: " + typeName + " cannot be made to use pipes: " + error);
                return;
            }
            if (failure == null) {
                failure = error;
                type = typeName;
            }
        }

        synchronized void report() {
            reported = true;
            if (failure != null) {
                throw new IllegalStateException("entrepot: " + type + " of this JVM cannot be made to use pipes", failure);
            }
        }
    }
}
