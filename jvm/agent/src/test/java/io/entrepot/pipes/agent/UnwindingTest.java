package io.entrepot.pipes.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.io.Closeable;
import org.junit.jupiter.api.Test;

class UnwindingTest {
    /** Notes what the check says when the program closes it. */
    private static final class File implements Closeable {
        final CloseOrder check = CloseOrder.opened();
        boolean closed;
        String problem;

        @Override
        public void close() {
            closed = true;
            problem = check.problem();
        }
    }

    @Test
    void anOrdinaryCloseIsInOrder() {
        File file = new File();
        try (file) {
            assertEquals(false, file.closed);
        }
        assertNull(file.problem);
    }

    @Test
    void anExceptionThatLeavesTheBlockIsNot() {
        File file = new File();
        try {
            try (file) {
                raise(true);
            }
        } catch (IllegalStateException expected) {
            assertNotNull(file.problem);
        }
        assertEquals(true, file.closed);
        assertEquals(true, file.problem.contains("UnwindingTest.anExceptionThatLeavesTheBlockIsNot"));
    }

    @Test
    void anExceptionThatLeavesByFinallyIsNot() {
        File file = new File();
        try {
            writeAndClose(file);
        } catch (IllegalStateException expected) {
            assertNotNull(file.problem);
        }
        assertEquals(true, file.closed);
    }

    private static void writeAndClose(File file) {
        try {
            raise(true);
        } finally {
            new Object() {
                void close() {
                    file.close();
                }
            }.close();
        }
    }

    @Test
    void aHandlerThatEndsWellIsInOrder() {
        File file = new File();
        while (true) {
            try {
                raise(true);
            } catch (IllegalStateException end) {
                break;
            }
        }
        file.close();
        assertNull(file.problem);
    }

    @Test
    void aLoopWithoutAnEndIsInOrder() {
        int turns = 0;
        try {
            while (true) {
                File file = new File();
                raise(++turns > 2);
                file.close();
                assertNull(file.problem);
            }
        } catch (IllegalStateException expected) {
            assertEquals(3, turns);
        }
    }

    @Test
    void aFileThatWasOpenedInAHandlerIsInOrder() {
        File file = null;
        try {
            try {
                raise(true);
            } finally {
                file = new File();
                file.close();
            }
        } catch (IllegalStateException expected) {
            assertNotNull(file);
        }
        assertNull(file.problem);
    }

    private static void raise(boolean now) {
        if (now) {
            throw new IllegalStateException("expected");
        }
    }
}
