package io.entrepot.pipes.client;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;
import java.util.Set;

/** Which engine opens a pipe: the one whose code is on the stack. The broker chooses its profile by that. */
final class Engines {
    private static final StackWalker WALKER = StackWalker.getInstance(Set.of(StackWalker.Option.RETAIN_CLASS_REFERENCE));

    /** Of which the current thread runs methods; the innermost, if Derby is within Spark. */
    enum Engine {
        DERBY("org.apache.derby.", "org/apache/derby/info/DBMS.properties") {
            @Override
            String version(Properties file) {
                return file.getProperty("derby.version.major", "") + "." + file.getProperty("derby.version.minor", "");
            }
        },
        SPARK("org.apache.spark.", "spark-version-info.properties") {
            @Override
            String version(Properties file) {
                return file.getProperty("version", "");
            }
        };

        private final String classes;
        private final String resource;

        Engine(String classes, String resource) {
            this.classes = classes;
            this.resource = resource;
        }

        /** The version that a file of the engine's jar says. */
        abstract String version(Properties file);

        String versionOf(Class<?> type) {
            ClassLoader loader = type.getClassLoader();
            try (InputStream file = loader == null ? null : loader.getResourceAsStream(resource)) {
                if (file == null) {
                    return "";
                }
                Properties values = new Properties();
                values.load(file);
                return version(values);
            } catch (IOException | IllegalArgumentException unreadable) {
                return ""; // the broker warns that the version is unknown
            }
        }
    }

    /** An engine, and one of its classes. */
    static final class Caller {
        final Engine engine;
        private final Class<?> type;

        private Caller(Engine engine, Class<?> type) {
            this.engine = engine;
            this.type = type;
        }

        String version() {
            return engine.versionOf(type);
        }
    }

    private Engines() {}

    /** Null, if it is none that is known. */
    static Caller caller() {
        return WALKER.walk(frames -> frames.map(frame -> of(frame.getDeclaringClass()))
                .filter(caller -> caller != null)
                .findFirst()
                .orElse(null));
    }

    static Caller of(Class<?> type) {
        for (Engine engine : Engine.values()) {
            if (type.getName().startsWith(engine.classes)) {
                return new Caller(engine, type);
            }
        }
        return null;
    }
}
