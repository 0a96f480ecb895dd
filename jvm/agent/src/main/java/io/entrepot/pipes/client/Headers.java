package io.entrepot.pipes.client;

/** Tells a file that what the program writes into it begins with a header, which the text itself does not say. */
public final class Headers {
    // Programs open a file, and write its header, in one thread.
    private static final ThreadLocal<Runnable> EXPECTING = new ThreadLocal<>();

    private Headers() {}

    /** Call this when the current thread writes a header next. */
    public static void expect(Runnable written) {
        EXPECTING.set(written);
    }

    /** The program is about to write a header. */
    public static void written() {
        Runnable expecting = EXPECTING.get();
        if (expecting != null) {
            EXPECTING.remove();
            expecting.run();
        }
    }
}
