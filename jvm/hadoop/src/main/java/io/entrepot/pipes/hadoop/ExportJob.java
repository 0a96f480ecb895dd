package io.entrepot.pipes.hadoop;

import io.entrepot.pipes.client.PipeException;
import io.entrepot.pipes.client.PipeOutput;
import io.entrepot.pipes.client.Pipes;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What one job writes into a pipe. Its files go straight into the pipe, one after the other at each of the pipe's
 * workers; the importers see the end only when the job commits.
 *
 * <pre>
 * new ── first file ──▶ open ── commit ──▶ over
 *                        └── fail: a file that rows came from was deleted, the job was aborted ──▶ failed
 * </pre>
 */
final class ExportJob {
    private final String pipe;
    private final int workers;
    // Guarded by this, as all that follows.
    private final List<PipeOutput> outputs = new ArrayList<>();
    private final Deque<PipeOutput> free = new ArrayDeque<>();
    private final Deque<PipeOutput> unused = new ArrayDeque<>();
    private final Map<Path, PartOutput> parts = new TreeMap<>();
    private String failure;
    private boolean over;

    ExportJob(String pipe, int workers) {
        this.pipe = pipe;
        this.workers = workers;
    }

    synchronized boolean isOver() {
        return over || failure != null;
    }

    /** Open a file; waits while as many others are open as the pipe has workers. */
    synchronized PartOutput create(Path place) throws IOException {
        check();
        if (outputs.isEmpty()) {
            open();
        }
        while (free.isEmpty() && unused.isEmpty()) {
            await();
            check();
        }
        boolean first = !unused.isEmpty();
        PipeOutput output = first ? unused.pop() : free.pop();
        PartOutput part = new PartOutput(new Straight(output), first);
        parts.put(place, part);
        return part;
    }

    private void open() throws IOException {
        for (int worker = 0; worker < workers; worker++) {
            PipeOutput output = Pipes.openOutput(pipe, () -> null);
            outputs.add(output);
            unused.add(output);
        }
    }

    private void await() throws IOException {
        try {
            wait(1000); // a failure notifies; the time is for a thread that was interrupted elsewhere
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new PipeException("Interrupted", pipe + ": the task was interrupted", error);
        }
    }

    /** Files, or a folder of them, have another place now. */
    synchronized void moved(Path from, Path to) {
        Map<Path, PartOutput> moved = new TreeMap<>();
        parts.entrySet().removeIf(entry -> {
            boolean within = entry.getKey().startsWith(from);
            if (within) {
                moved.put(to.resolve(from.relativize(entry.getKey())), entry.getValue());
            }
            return within;
        });
        parts.putAll(moved);
    }

    /** Files were deleted: if rows of them are in the pipe, the transfer fails. */
    synchronized void deleted(Path place) throws IOException {
        for (Map.Entry<Path, PartOutput> entry : List.copyOf(parts.entrySet())) {
            if (entry.getKey().startsWith(place)) {
                parts.remove(entry.getKey());
                if (entry.getValue().written() > 0) {
                    fail("a task or the job failed after rows had been sent: set fs.db.commit to spool if tasks are tried again");
                }
            }
        }
    }

    /** The job is complete: so is the pipe, if all files are in the folder. */
    synchronized void commit(Path folder) throws IOException {
        check();
        for (Path place : parts.keySet()) {
            if (!folder.equals(place.getParent())) {
                fail("the job committed, but " + place + " is not where it should be");
                check();
            }
        }
        if (free.size() + unused.size() < outputs.size()) {
            fail("the job committed while one of its files was open");
            check();
        }
        if (outputs.isEmpty()) {
            open();
        }
        over = true;
        for (PipeOutput output : outputs) {
            output.close();
        }
    }

    synchronized void fail(String reason) throws IOException {
        if (isOver()) {
            return;
        }
        failure = reason;
        notifyAll();
        for (PipeOutput output : outputs) {
            output.abort(reason);
        }
    }

    private void check() throws IOException {
        if (failure != null) {
            throw new PipeException("StreamFailed", pipe + ": " + failure);
        }
        if (over) {
            throw new PipeException("InvalidArgument", pipe + ": the job was committed before");
        }
    }

    private synchronized void release(PipeOutput output) {
        free.add(output);
        notifyAll();
    }

    private final class Straight implements PartOutput.Target {
        private final PipeOutput output;

        Straight(PipeOutput output) {
            this.output = output;
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            output.write(bytes, offset, length);
        }

        @Override
        public void close() {
            release(output);
        }
    }
}
