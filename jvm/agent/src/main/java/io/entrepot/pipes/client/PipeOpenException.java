package io.entrepot.pipes.client;

import java.io.FileNotFoundException;

/** A pipe could not be opened. A FileNotFoundException, because constructors of file streams declare no other. */
public final class PipeOpenException extends FileNotFoundException {
    private static final long serialVersionUID = 1L;
    private final String code;

    public PipeOpenException(String code, String message) {
        super(message);
        this.code = code;
    }

    /** The broker's name of the error, such as {@code Timeout} or {@code InvalidArgument}. */
    public String code() {
        return code;
    }
}
