package io.entrepot.pipes.hadoop;

import io.entrepot.pipes.client.PipeException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Pipes as folders of Hadoop's: {@code db://orders} has a file for each worker that reads; what a job writes into it is
 * complete when the job commits. See docs/pipes-jvm.md.
 */
public final class PipeFileSystem extends FileSystem {
    private static final long LENGTH = 1L << 50; // unknown; programs read to the end
    private static final String SUCCESS = "/_SUCCESS";
    private static final Set<String> TEXT = Set.of("csv", "tsv", "txt", "json", "jsonl", "text");
    // Both by the pipe's name and options. Hadoop's cache of file systems takes names of other case for the same.
    private static final Map<String, ExportJob> JOBS = new ConcurrentHashMap<>();

    private URI uri;
    private Path workingDirectory;

    @Override
    public void initialize(URI name, Configuration configuration) throws IOException {
        super.initialize(name, configuration);
        setConf(configuration);
        uri = URI.create(name.getScheme() + "://" + name.getRawAuthority());
        workingDirectory = new Path(name.getScheme(), name.getAuthority(), "/");
    }

    @Override
    public String getScheme() {
        return "db";
    }

    @Override
    public URI getUri() {
        return uri;
    }

    @Override
    protected void checkPath(Path path) {
        // Each path has its pipe's name.
    }

    @Override
    public Path getWorkingDirectory() {
        return workingDirectory;
    }

    @Override
    public void setWorkingDirectory(Path folder) {
        workingDirectory = folder;
    }

    // --- reading

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        Place place = place(path);
        if (!isImported(place)) {
            throw new FileNotFoundException(path + ": what is written into a pipe is read at its other end");
        }
        return new FSDataInputStream(new PartInput(place.pipe));
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        Place place = place(path);
        List<FileStatus> files = new ArrayList<>();
        if (isImported(place) || Files.isRegularFile(place.local)) {
            files.add(getFileStatus(path));
        } else if (place.path.equals("/") && !isExported(place)) {
            for (int worker = 0; worker < place.workers; worker++) {
                files.add(imported(new Path(path, String.format("part-%05d%s", worker, UnsplittableCodec.EXTENSION))));
            }
        } else {
            try {
                for (java.nio.file.Path file : Spool.list(place.local)) {
                    files.add(getFileStatus(new Path(path, file.getFileName().toString())));
                }
            } catch (NoSuchFileException error) {
                throw new FileNotFoundException(path.toString());
            }
        }
        return files.toArray(new FileStatus[0]);
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        Place place = place(path);
        if (place.path.equals("/")) {
            return new FileStatus(0, true, 1, LENGTH, 0, path);
        }
        if (isImported(place)) {
            return imported(path);
        }
        try {
            BasicFileAttributes attributes = Files.readAttributes(place.local, BasicFileAttributes.class);
            long changed = attributes.lastModifiedTime().toMillis();
            return new FileStatus(Spool.length(attributes), attributes.isDirectory(), 1, LENGTH, changed, path);
        } catch (NoSuchFileException error) {
            throw new FileNotFoundException(path.toString());
        }
    }

    /** A pipe is there for who reads it, also before it is written, and is not there for who asks before writing. */
    @Override
    public boolean exists(Path path) throws IOException {
        if (!place(path).path.equals("/")) {
            return super.exists(path);
        }
        return StackWalker.getInstance().walk(frames -> frames.map(StackWalker.StackFrame::getClassName)
                .noneMatch(name -> name.contains(".InsertInto") || name.endsWith(".FileOutputFormat")));
    }

    /** The question mark in a pipe's name is no wildcard. */
    @Override
    public FileStatus[] globStatus(Path pattern) throws IOException {
        return place(pattern).path.equals("/") ? new FileStatus[] {getFileStatus(pattern)} : super.globStatus(pattern);
    }

    private static FileStatus imported(Path path) {
        return new FileStatus(LENGTH, false, 1, LENGTH, 0, path);
    }

    private boolean isImported(Place place) {
        return place.path.matches("/part-[0-9]{5}\\.pipe");
    }

    private boolean isExported(Place place) {
        return JOBS.containsKey(place.pipe) || Files.isDirectory(place.local);
    }

    // --- writing

    @Override
    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferSize,
            short replication,
            long blockSize,
            Progressable progress)
            throws IOException {
        Place place = place(path);
        if (place.path.equals(SUCCESS)) {
            commit(place);
            return new FSDataOutputStream(OutputStream.nullOutputStream(), statistics);
        }
        check(place, path);
        Files.createDirectories(place.local.getParent());
        if (!streams()) {
            return new FSDataOutputStream(place.spool.spooled(place.local), statistics);
        }
        Files.createFile(place.local);
        return new FSDataOutputStream(job(place).create(place.local), statistics);
    }

    private void check(Place place, Path path) throws IOException {
        String name = path.getName();
        String[] suffixes = name.split("\\.");
        String format = suffixes.length < 2 ? "text" : suffixes[suffixes.length - 1];
        if (!TEXT.contains(format)) {
            throw new PipeException(
                    "InvalidArgument",
                    place.pipe + " is a pipe, which carries a table as text: write it as CSV, JSON or text without "
                            + "compression, and not as ." + format);
        }
        if (place.path.matches(".*/[^/]+=[^/]*/.*")) {
            throw new PipeException("InvalidArgument", place.pipe + " is a pipe, which has no folders for partitions");
        }
        if (!getConf().getBoolean("mapreduce.fileoutputcommitter.marksuccessfuljobs", true)) {
            throw new PipeException(
                    "InvalidArgument",
                    place.pipe + ": a pipe is complete when its job writes _SUCCESS: leave "
                            + "mapreduce.fileoutputcommitter.marksuccessfuljobs at true");
        }
    }

    /** Whether files go straight into the pipe: if no task is tried twice, and all are in this process. */
    private boolean streams() {
        String asked = getConf().get("fs.db.commit", "");
        if (!asked.isEmpty()) {
            if (!asked.equals("stream") && !asked.equals("spool")) {
                throw new IllegalArgumentException("fs.db.commit is 'stream' or 'spool', not '" + asked + "'");
            }
            return asked.equals("stream");
        }
        try {
            Class<?> type = getConf().getClassByNameOrNull("org.apache.spark.SparkEnv");
            Object environment = type == null ? null : type.getMethod("get").invoke(null);
            if (environment == null) {
                return false;
            }
            Object settings = environment.getClass().getMethod("conf").invoke(environment);
            java.lang.reflect.Method get = settings.getClass().getMethod("get", String.class, String.class);
            return String.valueOf(get.invoke(settings, "spark.master", "")).matches("local(\\[[0-9*]+\\])?")
                    && get.invoke(settings, "spark.speculation", "false").equals("false");
        } catch (ReflectiveOperationException otherSpark) {
            return false;
        }
    }

    private static ExportJob job(Place place) {
        return JOBS.computeIfAbsent(place.pipe, pipe -> new ExportJob(pipe, place.workers));
    }

    private void commit(Place place) throws IOException {
        try {
            if (streams()) {
                job(place).commit(place.spool.root);
            } else {
                place.spool.export(new ExportJob(place.pipe, place.workers));
            }
        } finally {
            JOBS.remove(place.pipe);
            Spool.delete(place.spool.root);
        }
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        Place place = place(path);
        if (place.path.matches("/_temporary/[0-9]+") && !Files.exists(place.local)) { // a job begins
            ExportJob former = JOBS.remove(place.pipe);
            if (former != null) {
                former.fail("the job was given up");
            }
            job(place);
        }
        Files.createDirectories(place.local);
        return true;
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        Place source = place(from);
        Place target = place(to);
        if (!Files.exists(source.local) || !source.pipe.equals(target.pipe)) {
            return false;
        }
        Files.createDirectories(target.local.getParent());
        Files.move(source.local, target.local);
        ExportJob job = JOBS.get(source.pipe);
        if (job != null) {
            job.moved(source.local, target.local);
        }
        return true;
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        Place place = place(path);
        ExportJob job = JOBS.get(place.pipe);
        if (job != null) {
            job.deleted(place.local);
        }
        return Spool.delete(place.local);
    }

    @Override
    public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
        throw new PipeException("NotSeekable", path + " is in a pipe, to which nothing can be appended");
    }

    // --- names

    private static Place place(Path path) throws IOException {
        String authority = path.toUri().getAuthority();
        if (authority == null || authority.isEmpty()) {
            throw new PipeException("InvalidArgument", path + " names no pipe: write db://NAME");
        }
        return new Place(authority, path.toUri().getPath());
    }

    /** A path: its pipe, and where it is within it. */
    private static final class Place {
        final String pipe;
        final String path;
        final int workers;
        final Spool spool;
        final java.nio.file.Path local;

        Place(String authority, String path) throws IOException {
            pipe = "db://" + authority;
            this.path = path.isEmpty() ? "/" : path;
            workers = workers(authority);
            String socket = System.getenv("ENTREPOT_PIPES_SOCKET");
            if (socket == null) {
                throw new PipeException(
                        "BrokerUnavailable", pipe + ": start the program with 'entrepot pipe run -- PROGRAM ...'");
            }
            spool = new Spool(socket, pipe);
            local = spool.local(this.path);
        }

        private static int workers(String authority) {
            for (String option : authority.substring(authority.indexOf('?') + 1).split("&")) {
                if (option.matches("workers=[0-9]{1,4}")) {
                    return Integer.parseInt(option.substring("workers=".length()));
                }
            }
            return 1;
        }
    }
}
