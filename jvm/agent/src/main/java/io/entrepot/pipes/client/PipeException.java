package io.entrepot.pipes.client;

import java.io.IOException;

/** A pipe broke, or cannot do what was asked of it. Never an end of file. */
public final class PipeException extends IOException {
    private static final long serialVersionUID = 1L;
    private final String code;

    public PipeException(String code, String message) {
        super(message);
        this.code = code;
    }

    public PipeException(String code, String message, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /** The broker's name of the error, such as {@code Timeout} or {@code StreamFailed}. */
    public String code() {
        return code;
    }
}
