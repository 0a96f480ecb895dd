package io.entrepot.pipes.agent;

import java.io.File;
import java.lang.instrument.Instrumentation;
import java.util.jar.JarFile;

/**
 * The agent's entry. The classes of the agent have to be on the bootstrap class path, because methods of java.base
 * call them; this class only puts them there, so that each exists once.
 */
public final class PipesAgent {
    private static final int FIRST_WITH_UNIX_SOCKETS = 16;

    private PipesAgent() {}

    public static void premain(String arguments, Instrumentation instrumentation) throws Exception {
        if (Runtime.version().feature() < FIRST_WITH_UNIX_SOCKETS) {
            System.err.println("entrepot: no pipes in this program: they need Java 16 or later, which has Unix sockets;"
                    + " this is Java " + System.getProperty("java.version"));
            return;
        }
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
}
