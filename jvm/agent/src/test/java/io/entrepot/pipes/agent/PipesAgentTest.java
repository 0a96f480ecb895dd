package io.entrepot.pipes.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class PipesAgentTest {
    @Test
    void theEntryIsAClassOfJava8() throws IOException {
        try (DataInputStream in = new DataInputStream(PipesAgent.class.getResourceAsStream("PipesAgent.class"))) {
            assertEquals(0xCAFEBABE, in.readInt());
            in.readShort();
            assertEquals(52, in.readShort());
        }
    }

    @Test
    void aJvmThatCannotBeChangedStartsWithOneWarning() {
        Instrumentation refusing = (Instrumentation) Proxy.newProxyInstance(
                getClass().getClassLoader(), new Class<?>[] {Instrumentation.class}, (proxy, method, arguments) -> {
                    throw new UnsupportedOperationException(method.getName());
                });
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.err;
        System.setErr(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            PipesAgent.premain("", refusing);
        } finally {
            System.setErr(before);
        }
        String[] lines = printed.toString(StandardCharsets.UTF_8).split("\n");
        assertEquals(1, lines.length);
        assertEquals("entrepot: no pipes in this program:", lines[0].substring(0, 35));
    }
}
