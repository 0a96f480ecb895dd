package io.entrepot.pipes.hadoop;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The folder of a job's files, beside the broker's socket, where all processes of 'entrepot pipe run' find it. A file
 * that is spooled begins with a byte that says whether it has a header; one that went into the pipe is empty.
 */
final class Spool {
    private static final int COPIED_BYTES = 256 << 10;
    private static final byte HEADER = 'h';
    private static final byte NO_HEADER = '-';

    final Path root;

    Spool(String socket, String pipe) {
        String name = URLEncoder.encode(pipe, StandardCharsets.UTF_8);
        root = Path.of(socket).resolveSibling("hadoop").resolve(name);
    }

    /** The local file of a path within the pipe, such as {@code /_temporary/0}. */
    Path local(String path) {
        return root.resolve(path.replaceAll("^/+", "")).normalize();
    }

    /** Bytes that were written into a file. */
    static long length(BasicFileAttributes attributes) {
        return attributes.isDirectory() ? 0 : Math.max(0, attributes.size() - 1);
    }

    PartOutput spooled(Path place) throws IOException {
        OutputStream out = new BufferedOutputStream(Files.newOutputStream(place), COPIED_BYTES);
        boolean[] begun = {false};
        boolean[] header = {false};
        PartOutput part = new PartOutput(
                new PartOutput.Target() {
                    @Override
                    public void write(byte[] bytes, int offset, int length) throws IOException {
                        begin();
                        out.write(bytes, offset, length);
                    }

                    @Override
                    public void close() throws IOException {
                        begin();
                        out.close();
                    }

                    private void begin() throws IOException {
                        if (!begun[0]) {
                            begun[0] = true;
                            out.write(header[0] ? HEADER : NO_HEADER);
                        }
                    }
                },
                true);
        io.entrepot.pipes.client.Headers.expect(() -> header[0] = true);
        return part;
    }

    /** Send the files of the folder into the pipe, and complete it. */
    void export(ExportJob job) throws IOException {
        for (Path file : list(root)) {
            if (Files.isDirectory(file) || file.getFileName().toString().matches("[_.].*")) {
                continue;
            }
            try (InputStream in = new BufferedInputStream(Files.newInputStream(file), COPIED_BYTES);
                    PartOutput part = job.create(file)) {
                if (in.read() == HEADER) {
                    io.entrepot.pipes.client.Headers.written();
                }
                byte[] bytes = new byte[COPIED_BYTES];
                for (int count = in.read(bytes); count >= 0; count = in.read(bytes)) {
                    part.write(bytes, 0, count);
                }
            }
        }
        job.commit(root);
    }

    static List<Path> list(Path folder) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.sorted().collect(Collectors.toList());
        } catch (UncheckedIOException error) {
            throw error.getCause();
        }
    }

    static boolean delete(Path place) throws IOException {
        if (!Files.exists(place)) {
            return false;
        }
        Files.walkFileTree(place, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                Files.deleteIfExists(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path folder, IOException error) throws IOException {
                if (error != null) {
                    throw error;
                }
                Files.deleteIfExists(folder);
                return FileVisitResult.CONTINUE;
            }
        });
        return true;
    }
}
