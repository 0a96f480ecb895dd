import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.util.Arrays;

/** What ordinary files cost: prints nanoseconds to open and close one, to write a byte, and to read one. */
public final class FileLoop {
    private static final int ROUNDS = 31;

    public static void main(String[] arguments) throws Exception {
        String file = arguments[0];
        try (FileOutputStream out = new FileOutputStream(file)) {
            out.write(new byte[1 << 16]);
        }
        double[][] times = new double[3][ROUNDS];
        for (int round = -20; round < ROUNDS; round++) { // those before 0 warm up
            double[] measured = {opens(file), writes(file), reads(file)};
            for (int which = 0; which < 3 && round >= 0; which++) {
                times[which][round] = measured[which];
            }
        }
        StringBuilder line = new StringBuilder();
        for (double[] each : times) {
            Arrays.sort(each);
            line.append(' ').append(each[ROUNDS / 2]);
        }
        System.out.println("TIMES" + line);
    }

    private static double opens(String file) throws Exception {
        long begin = System.nanoTime();
        for (int i = 0; i < 2000; i++) {
            new FileInputStream(file).close();
        }
        return (System.nanoTime() - begin) / 2000.0;
    }

    private static double writes(String file) throws Exception {
        try (FileOutputStream out = new FileOutputStream(file)) {
            byte[] bytes = {1};
            long begin = System.nanoTime();
            for (int i = 0; i < 20_000; i++) {
                out.write(bytes);
            }
            return (System.nanoTime() - begin) / 20_000.0;
        }
    }

    private static double reads(String file) throws Exception {
        try (FileInputStream in = new FileInputStream(file)) {
            long begin = System.nanoTime();
            for (int i = 0; i < 20_000; i++) {
                if (in.read() < 0) {
                    throw new IllegalStateException("too short");
                }
            }
            return (System.nanoTime() - begin) / 20_000.0;
        }
    }
}
