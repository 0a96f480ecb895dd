package io.entrepot.pipes.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Test;

class PipeNamesTest {
    @Test
    void normalizedNamesAreNamesOfPipes() {
        assertEquals("db://orders", PipeNames.pipe("db://orders"));
        assertEquals("db://orders?workers=2", PipeNames.pipe("db:/orders?workers=2"));
        assertEquals("db://orders", PipeNames.pipe(System.getProperty("user.dir") + "/db:/orders"));
    }

    @Test
    void otherPathsAreNot() {
        assertNull(PipeNames.pipe(null));
        assertNull(PipeNames.pipe("db://"));
        assertNull(PipeNames.pipe("/data/orders.csv"));
        assertNull(PipeNames.pipe("/elsewhere/db:/orders"));
    }

    @Test
    void optionsOfReservedFiles() {
        assertEquals("db://orders", PipeNames.pipeOfReserved("orders.csv"));
        assertEquals("db://orders?workers=3&query=q1", PipeNames.pipeOfReserved("orders@workers=3@query=q1.csv"));
    }

    @Test
    void namesAreFoldersOfHadoop() {
        assertEquals("db://orders/", PipeNames.folder("db://orders"));
        assertEquals("db://orders/part", PipeNames.folder("db://orders/part"));
        assertEquals("hdfs://host", PipeNames.folder("hdfs://host"));
    }
}
