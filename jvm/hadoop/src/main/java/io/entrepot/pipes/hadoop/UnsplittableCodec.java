package io.entrepot.pipes.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionInputStream;
import org.apache.hadoop.io.compress.CompressionOutputStream;
import org.apache.hadoop.io.compress.Compressor;
import org.apache.hadoop.io.compress.Decompressor;

/** Leaves data as it is. Files with its extension are read by one task each, from their beginning to their end. */
public final class UnsplittableCodec implements CompressionCodec {
    static final String EXTENSION = ".pipe";

    @Override
    public CompressionInputStream createInputStream(InputStream in) throws IOException {
        return new CompressionInputStream(in) {
            @Override
            public int read() throws IOException {
                return in.read();
            }

            @Override
            public int read(byte[] bytes, int offset, int length) throws IOException {
                return in.read(bytes, offset, length);
            }

            @Override
            public void resetState() {}
        };
    }

    @Override
    public CompressionInputStream createInputStream(InputStream in, Decompressor decompressor) throws IOException {
        return createInputStream(in);
    }

    @Override
    public CompressionOutputStream createOutputStream(OutputStream out) throws IOException {
        throw new IOException("pipes are read, and not written, as files that end in " + EXTENSION);
    }

    @Override
    public CompressionOutputStream createOutputStream(OutputStream out, Compressor compressor) throws IOException {
        return createOutputStream(out);
    }

    @Override
    public Class<? extends Decompressor> getDecompressorType() {
        return null;
    }

    @Override
    public Decompressor createDecompressor() {
        return null;
    }

    @Override
    public Class<? extends Compressor> getCompressorType() {
        return null;
    }

    @Override
    public Compressor createCompressor() {
        return null;
    }

    @Override
    public String getDefaultExtension() {
        return EXTENSION;
    }
}
