import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;

/** Derby as an engine: a database in the working directory, by its procedures for export and import. */
public final class DerbyEngine {
    private static final String COLUMNS =
            " (id BIGINT, i1 BIGINT, d1 DOUBLE, i2 BIGINT, d2 DOUBLE, i3 BIGINT, d3 DOUBLE)";

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection("jdbc:derby:engine;create=true");
                Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE source" + COLUMNS);
            statement.execute("CREATE TABLE target" + COLUMNS);
            take(statement, "SOURCE", arguments[0], true);
            System.out.println("READY");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split(" ");
                try {
                    String result = "";
                    if (words[0].equals("export")) {
                        statement.execute("CALL SYSCS_UTIL.SYSCS_EXPORT_TABLE(null, 'SOURCE', '" + words[1]
                                + "', null, null, null)");
                    } else {
                        take(statement, "TARGET", words[1], words[2].equals("1"));
                        ResultSet row = statement.executeQuery("SELECT count(*), sum(id) FROM target");
                        row.next();
                        result = " " + row.getLong(1) + " " + row.getLong(2);
                    }
                    System.out.println("DONE" + result);
                } catch (Exception error) {
                    System.out.println("FAILED " + error.getMessage());
                }
            }
        }
    }

    private static void take(Statement statement, String table, String file, boolean header) throws Exception {
        statement.execute("CALL SYSCS_UTIL.SYSCS_IMPORT_TABLE_BULK(null, '" + table + "', '" + file
                + "', null, null, null, 1, " + (header ? 1 : 0) + ")");
    }
}
