package io.entrepot.pipes.hadoop;

import io.entrepot.pipes.agent.Inputs;
import io.entrepot.pipes.client.PipeException;
import io.entrepot.pipes.client.PipeInput;
import java.io.IOException;
import org.apache.hadoop.fs.FSInputStream;

/** A pipe as a file of Hadoop's. */
final class PartInput extends FSInputStream {
    private final String pipe;
    private final PipeInput input;

    PartInput(String pipe) throws IOException {
        this.pipe = pipe;
        input = Inputs.open(pipe);
    }

    @Override
    public int read() throws IOException {
        return input.read();
    }

    @Override
    public int read(byte[] bytes, int offset, int length) throws IOException {
        return input.read(bytes, offset, length);
    }

    @Override
    public int available() throws IOException {
        return input.available();
    }

    /** Back, within what is kept. Formats that begin at the end of a file would lose everything before. */
    @Override
    public void seek(long position) throws IOException {
        if (position > input.position()) {
            throw new PipeException(
                    "NotSeekable",
                    pipe + " is a pipe: it cannot be read at byte " + position + " before byte " + input.position()
                            + ". Read it as CSV, JSON or text; Parquet and ORC need files, such as the views of 'entrepot mount'");
        }
        input.seek(position);
    }

    @Override
    public long getPos() {
        return input.position();
    }

    @Override
    public boolean seekToNewSource(long position) {
        return false;
    }

    @Override
    public void close() throws IOException {
        Inputs.close(input);
    }
}
