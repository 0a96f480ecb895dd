package io.entrepot.pipes.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Which file names stand for pipes. The rules are those of {@code entrepot_pipes/names.py}. */
public final class PipeNames {
    /** The folder that the names seem to be in, once a program has normalized {@code db://orders}. */
    static final String FOLDER = "db:";

    private static final String RESERVED_PREFIX = "__reserved__";
    private static final String[] SUFFIXES = {
        ".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".arrow", ".feather", ".orc"
    };
    private static final String WORKING_DIRECTORY = System.getProperty("user.dir", "/");
    private static final String RESERVED_FOLDER = System.getenv("ENTREPOT_PIPES_FOLDER");
    // Set while the reserved folder is looked at, which asks again for the names of its files.
    private static final ThreadLocal<Boolean> LOOKING = new ThreadLocal<>();

    private PipeNames() {}

    /** The pipe that a path stands for, as {@code db://name?options}; null for an ordinary file. */
    public static String pipe(String path) {
        if (path == null) {
            return null;
        }
        String name = relative(path);
        if (name.startsWith("db:/")) {
            int start = 4;
            while (start < name.length() && name.charAt(start) == '/') {
                start++;
            }
            return start == name.length() ? null : "db://" + name.substring(start);
        }
        return RESERVED_FOLDER != null && path.contains(RESERVED_PREFIX) ? reserved(path) : null;
    }

    /** A name without a path, with one; others as they are. */
    public static String folder(String path) {
        return path != null && path.startsWith("db://") && path.indexOf('/', 5) < 0 ? path + "/" : path;
    }

    /** Whether a path is the folder that names of pipes seem to be in; there is no such folder. */
    static boolean isFolder(String path) {
        return path != null && (path.equals(FOLDER) || path.endsWith("/" + FOLDER)) && relative(path).equals(FOLDER);
    }

    /** Without the working directory, which programs put before what seems to be a relative path. */
    private static String relative(String path) {
        int at = path.indexOf("/db:");
        return at > 0 && at == WORKING_DIRECTORY.length() && path.startsWith(WORKING_DIRECTORY)
                ? path.substring(at + 1)
                : path;
    }

    private static String reserved(String path) {
        int slash = path.lastIndexOf('/');
        if (!path.startsWith(RESERVED_PREFIX, slash + 1) || LOOKING.get() != null) {
            return null;
        }
        LOOKING.set(true);
        try {
            Path folder = Path.of(slash < 0 ? "." : path.substring(0, slash + 1));
            // A file that is there is a FIFO of 'entrepot pipe run --export', which works as it is.
            if (!Files.isSameFile(folder, Path.of(RESERVED_FOLDER)) || Files.exists(Path.of(path))) {
                return null;
            }
        } catch (IOException noSuchFolder) {
            return null;
        } finally {
            LOOKING.remove();
        }
        return pipeOfReserved(path.substring(slash + 1 + RESERVED_PREFIX.length()));
    }

    static String pipeOfReserved(String file) {
        String name = file;
        for (String suffix : SUFFIXES) {
            if (name.endsWith(suffix)) {
                name = name.substring(0, name.length() - suffix.length());
                break;
            }
        }
        int options = name.indexOf('@');
        if (options < 0) {
            return "db://" + name;
        }
        return "db://" + name.substring(0, options) + "?" + name.substring(options + 1).replace('@', '&');
    }
}
