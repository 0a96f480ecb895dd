package io.entrepot.pipes.agent;

import java.io.File;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.InvocationTargetException;
import java.util.jar.JarFile;

/**
 * The agent's entry. The classes of the agent have to be on the bootstrap class path, because methods of java.base
 * call them; this class only puts them there, so that each exists once. It is compiled for Java 8, as a JVM whose agent
 * fails does not start: a program without pipes is told so by one warning, and runs.
 */
public final class PipesAgent {
    private static final double FIRST_WITH_UNIX_SOCKETS = 16;

    private PipesAgent() {}

    public static void premain(String arguments, Instrumentation instrumentation) {
        if (Double.parseDouble(System.getProperty("java.specification.version")) < FIRST_WITH_UNIX_SOCKETS) {
            warn("they need Java 16 or later, which has Unix sockets; this is Java "
                    + System.getProperty("java.version"));
            return;
        }
        try {
            install(instrumentation);
        } catch (InvocationTargetException failed) {
            warn(String.valueOf(failed.getCause()));
        } catch (Exception | LinkageError failed) {
            warn(String.valueOf(failed));
        }
    }

    private static void install(Instrumentation instrumentation) throws Exception {
        File jar = new File(PipesAgent.class
                .getProtectionDomain()
                .getCodeSource()
                .getLocation()
                .toURI());
        instrumentation.appendToBootstrapClassLoaderSearch(new JarFile(jar));
        File hadoop = new File(jar.getParentFile(), "entrepot-pipes-hadoop.jar");
        if (hadoop.isFile()) {
            instrumentation.appendToSystemClassLoaderSearch(new JarFile(hadoop));
        }
        Class.forName("io.entrepot.pipes.agent.Installation", true, null)
                .getMethod("install", Instrumentation.class)
                .invoke(null, instrumentation);
    }

    private static void warn(String reason) {
        System.err.println("entrepot: no pipes in this program: " + reason);
    }
}
