import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * pulsar-admin's commands in one Java process: reads a JSON list of arguments a line, and prints
 * {"exit": …, "out": …, "status": …, "err": …} for each: the status of
 * HTTP, or 0. Argument: URL of the admin API.
 */
public class Commands extends PulsarAdminTool {
    int status;

    Commands(Properties properties) throws Exception {
        super(properties);
        commander.setExecutionExceptionHandler((error, command, parsed) -> {
            if (error instanceof PulsarAdminException) {
                status = ((PulsarAdminException) error).getStatusCode();
            }
            System.err.println(error);
            return 1;
        });
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        Properties properties = new Properties();
        properties.setProperty("webServiceUrl", arguments[0]);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true) {
            @Override
            public void close() { // monitoring-metrics does so
                flush();
            }
        });
        System.setErr(new PrintStream(err, true));
        Commands tool = new Commands(properties);
        String line;
        while ((line = lines.readLine()) != null) {
            out.reset();
            err.reset();
            tool.status = 0;
            boolean done = tool.run(json.readValue(line, String[].class));
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("exit", done ? 0 : 1);
            answer.put("out", out.toString(StandardCharsets.UTF_8));
            answer.put("status", tool.status);
            answer.put("err", err.toString(StandardCharsets.UTF_8));
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }
}
