import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;

/** Exports a table of Derby to a file, or imports one, by the procedures that Derby has for it. */
public final class DerbyTable {
    private static final int ROWS = 20_000;

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection("jdbc:derby:memory:table;create=true");
                Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE t (id BIGINT, name VARCHAR(40), price DOUBLE)");
            String file = arguments[1];
            switch (arguments[0]) {
                case "export":
                    fill(connection);
                    statement.execute("CALL SYSCS_UTIL.SYSCS_EXPORT_TABLE(null, 'T', '" + file + "', null, null, null)");
                    break;
                case "break":
                    fill(connection);
                    statement.execute("CALL SYSCS_UTIL.SYSCS_EXPORT_QUERY('SELECT id, 1 / (id - " + ROWS / 2
                            + ") FROM t', '" + file + "', null, null, null)");
                    break;
                case "texts":
                    statement.execute("CREATE TABLE w (a VARCHAR(9), b VARCHAR(9))");
                    statement.execute("INSERT INTO w VALUES ('one', 'two'), ('three', 'four')");
                    statement.execute("CALL SYSCS_UTIL.SYSCS_EXPORT_TABLE(null, 'W', '" + file + "', null, null, null)");
                    break;
                default:
                    // With a header it opens the file five times, and once forgets to close it.
                    statement.execute("CALL SYSCS_UTIL.SYSCS_IMPORT_TABLE_BULK(null, 'T', '" + file
                            + "', null, null, null, 0, " + (arguments[0].equals("import-header") ? 1 : 0) + ")");
                    ResultSet result = statement.executeQuery("SELECT count(*), sum(price) FROM t");
                    result.next();
                    System.out.println(result.getLong(1) + " " + result.getDouble(2));
            }
        }
    }

    private static void fill(Connection connection) throws Exception {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO t VALUES (?, ?, ?)")) {
            for (int i = 0; i < ROWS; i++) {
                insert.setLong(1, i);
                insert.setString(2, "item \"" + i + "\"");
                insert.setDouble(3, i * 0.5);
                insert.addBatch();
                if (i % 1000 == 999) {
                    insert.executeBatch();
                }
            }
        }
    }
}
