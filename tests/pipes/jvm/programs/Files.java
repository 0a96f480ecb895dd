import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.FileReader;
import java.io.FileWriter;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Scanner;

/** An unmodified program: writes or reads a table by one of the ways that Java has. Knows nothing of pipes. */
public final class Files {
    private static final int ROWS = 20_000;

    public static void main(String[] arguments) throws Exception {
        String way = arguments[1];
        String file = arguments[2];
        if (arguments[0].equals("write")) {
            write(way, file);
        } else {
            System.out.println(read(way, file));
        }
    }

    private static String row(int number) {
        return number + ",\"item " + number + "\"," + number * 0.5 + "\n";
    }

    private static void write(String way, String file) throws Exception {
        switch (way) {
            case "writer":
                try (BufferedWriter out = new BufferedWriter(new FileWriter(file))) {
                    out.write("id,name,price\n");
                    for (int i = 0; i < ROWS; i++) {
                        out.write(row(i));
                    }
                }
                break;
            case "stream":
                try (OutputStream out = new FileOutputStream(new File(file))) {
                    out.write("id,name,price\n".getBytes(StandardCharsets.UTF_8));
                    for (int i = 0; i < ROWS; i++) {
                        out.write(row(i).getBytes(StandardCharsets.UTF_8));
                    }
                }
                break;
            case "print":
                try (PrintWriter out = new PrintWriter(file)) {
                    out.print("id,name,price\n");
                    for (int i = 0; i < ROWS; i++) {
                        out.print(row(i));
                    }
                    if (out.checkError()) {
                        throw new IllegalStateException("not written");
                    }
                }
                break;
            case "files":
                try (BufferedWriter out = java.nio.file.Files.newBufferedWriter(Path.of(file))) {
                    out.write("id,name,price\n");
                    for (int i = 0; i < ROWS; i++) {
                        out.write(row(i));
                    }
                }
                break;
            case "channel":
                try (FileChannel out = FileChannel.open(
                        Path.of(file), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                    out.write(ByteBuffer.wrap("id,name,price\n".getBytes(StandardCharsets.UTF_8)));
                    for (int i = 0; i < ROWS; i++) {
                        out.write(ByteBuffer.wrap(row(i).getBytes(StandardCharsets.UTF_8)));
                    }
                }
                break;
            case "append":
                try (OutputStream out = new FileOutputStream(file, true)) {
                    out.write(row(0).getBytes(StandardCharsets.UTF_8));
                }
                break;
            case "append-files":
                java.nio.file.Files.writeString(
                        Path.of(file), row(0), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                break;
            case "raise":
                try (BufferedWriter out = new BufferedWriter(new FileWriter(file))) {
                    writeAndRaise(out);
                }
                break;
            case "raise-files":
                try (BufferedWriter out = java.nio.file.Files.newBufferedWriter(Path.of(file))) {
                    writeAndRaise(out);
                }
                break;
            case "finally":
                BufferedWriter closed = new BufferedWriter(new FileWriter(file));
                try {
                    writeAndRaise(closed);
                } finally {
                    closeQuietly(closed);
                }
                break;
            case "caught":
                try (BufferedWriter out = new BufferedWriter(new FileWriter(file))) {
                    writeAndRaise(out);
                } catch (IllegalStateException error) {
                    System.err.println(error);
                }
                break;
            case "hook":
                BufferedWriter late = new BufferedWriter(new FileWriter(file));
                Runtime.getRuntime().addShutdownHook(new Thread(() -> closeQuietly(late)));
                writeAndRaise(late);
                break;
            case "collected":
                new Collected(file).stream.write(row(0).getBytes(StandardCharsets.UTF_8));
                while (!Collected.finalized) {
                    System.gc();
                    Thread.sleep(10);
                }
                break;
            case "end-of-input": // a handler that ends well is a part of the ordinary way
                writeUntilEnd(file);
                break;
            case "in-handler":
                try {
                    throw new IllegalStateException("as in a program that reports an error by a file");
                } catch (IllegalStateException error) {
                    write("writer", file);
                    throw error;
                }
            case "halt":
                FileWriter out = new FileWriter(file);
                out.write("id,name,price\n");
                for (int i = 0; i < ROWS; i++) {
                    out.write(row(i));
                }
                out.flush();
                Runtime.getRuntime().halt(7);
                break;
            default:
                throw new IllegalArgumentException(way);
        }
    }

    private static void writeAndRaise(BufferedWriter out) throws Exception {
        out.write("id,name,price\n");
        for (int i = 0; i < ROWS; i++) {
            out.write(row(i));
            if (i == ROWS / 2) {
                throw new IllegalStateException("the source is gone");
            }
        }
    }

    private static void closeQuietly(BufferedWriter out) {
        try {
            out.close();
        } catch (java.io.IOException error) {
            System.err.println(error);
        }
    }

    private static void writeUntilEnd(String file) throws Exception {
        StringBuilder text = new StringBuilder("id,name,price\n");
        for (int i = 0; i < ROWS; i++) {
            text.append(row(i));
        }
        java.io.DataInputStream in = new java.io.DataInputStream(
                new java.io.ByteArrayInputStream(text.toString().getBytes(StandardCharsets.UTF_8)));
        OutputStream out = new java.io.BufferedOutputStream(new FileOutputStream(file));
        while (true) {
            try {
                out.write(in.readByte());
            } catch (java.io.EOFException end) {
                break;
            }
        }
        out.close();
    }

    private static final class Collected {
        static volatile boolean finalized;
        final OutputStream stream;

        Collected(String file) throws Exception {
            stream = java.nio.file.Files.newOutputStream(Path.of(file));
        }

        @Override
        @SuppressWarnings({"deprecation", "removal"})
        protected void finalize() throws Throwable {
            stream.close();
            finalized = true;
        }
    }

    private static String read(String way, String file) throws Exception {
        long rows = 0;
        double total = 0;
        switch (way) {
            case "reader":
                try (BufferedReader in = new BufferedReader(new FileReader(file))) {
                    in.readLine();
                    for (String line = in.readLine(); line != null; line = in.readLine()) {
                        rows++;
                        total += Double.parseDouble(line.substring(line.lastIndexOf(',') + 1));
                    }
                }
                break;
            case "stream":
                try (InputStream in = new FileInputStream(file)) {
                    return sum(new String(in.readAllBytes(), StandardCharsets.UTF_8));
                }
            case "scanner":
                try (Scanner in = new Scanner(new File(file))) {
                    in.nextLine();
                    while (in.hasNextLine()) {
                        String line = in.nextLine();
                        rows++;
                        total += Double.parseDouble(line.substring(line.lastIndexOf(',') + 1));
                    }
                    if (in.ioException() != null) {
                        throw in.ioException();
                    }
                }
                break;
            case "again":
                try (FileInputStream in = new FileInputStream(file)) {
                    byte[] first = in.readNBytes(40);
                    if (in.skip(-40) != -40 || !java.util.Arrays.equals(first, in.readNBytes(40))) {
                        throw new IllegalStateException("other bytes");
                    }
                    FileChannel channel = in.getChannel();
                    channel.position(0);
                    return sum(new String(in.readAllBytes(), StandardCharsets.UTF_8));
                }
            case "twice": // looks at the first line, and opens the file again
                try (BufferedReader in = new BufferedReader(new FileReader(file))) {
                    if (!in.readLine().startsWith("id,")) {
                        throw new IllegalStateException("no header");
                    }
                }
                new FileInputStream(file).close();
                InputStream forgotten = new FileInputStream(file);
                forgotten.read(new byte[8192]);
                try (FileChannel in = FileChannel.open(Path.of(file))) {
                    in.read(ByteBuffer.allocate(600_000));
                }
                return read("reader", file);
            case "files":
                return sum(java.nio.file.Files.readString(Path.of(file)));
            case "lines":
                return sum(String.join("\n", java.nio.file.Files.readAllLines(Path.of(file))));
            case "random":
                try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
                    return "" + in.length();
                }
            default:
                throw new IllegalArgumentException(way);
        }
        return rows + " " + total;
    }

    private static String sum(String text) {
        String[] lines = text.split("\n");
        double total = 0;
        for (int i = 1; i < lines.length; i++) {
            total += Double.parseDouble(lines[i].substring(lines[i].lastIndexOf(',') + 1));
        }
        return (lines.length - 1) + " " + total;
    }
}
