package io.entrepot.pipes.agent;

import io.entrepot.pipes.client.PipeInput;
import io.entrepot.pipes.client.Pipes;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Ends that read, as programs open and close them. Some look at the beginning of a file, close it, and open it again to
 * read it: an end that is closed soon after its beginning waits for a while, and who opens the name next goes on with it.
 * Some forget to close it: where a pipe has one worker, who opens its name again takes an open end's place as well.
 *
 * <pre>
 * open ── close within the beginning ──▶ waiting ── open ──▶ open
 *   ├──── open again within the beginning ▶ another one goes on at byte 0
 *   │                                       └── 30 s, end of the program ──▶ closed: the reader gave up
 *   └──── close later ─────────────────────────────────────────────────────▲
 * </pre>
 */
public final class Inputs {
    private static final long WAIT_SECONDS = 30;
    // Several, if several workers of the pipe are in this process.
    private static final Map<String, Deque<PipeInput>> WAITING = new HashMap<>(); // guarded by itself

    // The last that was opened of each pipe with one worker. Guarded by WAITING.
    private static final Map<String, WeakReference<PipeInput>> LAST = new HashMap<>();

    private Inputs() {}

    public static PipeInput open(String pipe) throws IOException {
        PipeInput input = former(pipe);
        if (input == null) {
            input = Pipes.openInput(pipe);
        }
        if (!pipe.contains("workers=")) {
            synchronized (WAITING) {
                LAST.put(pipe, new WeakReference<>(input));
            }
        }
        return input;
    }

    private static PipeInput former(String pipe) {
        synchronized (WAITING) {
            Deque<PipeInput> waiting = WAITING.get(pipe);
            if (waiting != null && !waiting.isEmpty()) {
                return waiting.poll();
            }
            WeakReference<PipeInput> last = LAST.remove(pipe);
            PipeInput open = last == null ? null : last.get();
            return open == null ? null : open.restart();
        }
    }

    public static void close(PipeInput input) throws IOException {
        PipeInput restarted = input.restart();
        if (restarted == null) {
            input.close();
            return;
        }
        synchronized (WAITING) {
            WAITING.computeIfAbsent(input.pipe(), pipe -> new ArrayDeque<>()).add(restarted);
        }
        CompletableFuture.delayedExecutor(WAIT_SECONDS, TimeUnit.SECONDS).execute(() -> giveUp(input.pipe(), restarted));
    }

    private static void giveUp(String pipe, PipeInput input) {
        synchronized (WAITING) {
            if (!WAITING.get(pipe).remove(input)) {
                return; // it was opened again
            }
        }
        try {
            input.close();
        } catch (IOException error) {
            System.err.println("entrepot: " + pipe + ": closing it failed: " + error);
        }
    }
}
