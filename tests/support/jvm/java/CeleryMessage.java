import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** A task as Celery publishes it to Redis: protocol 2, JSON, in kombu's envelope. */
final class CeleryMessage {
    private static final ObjectMapper JSON = new ObjectMapper();

    private CeleryMessage() {}

    /**
     * Returns the message of a task.
     *
     * @param id the task's id, with which it is cancelled or its result is read
     * @param task the task's name
     * @param queue the queue from which a Celery worker consumes it
     * @param priority 0 to 9
     */
    static String of(String id, String task, String queue, int priority, List<?> args, Map<String, ?> kwargs)
            throws JsonProcessingException {
        Map<String, Object> embed = new LinkedHashMap<>();
        for (String each : Arrays.asList("callbacks", "errbacks", "chain", "chord")) {
            embed.put(each, null);
        }
        byte[] body = JSON.writeValueAsBytes(Arrays.asList(args, kwargs, embed));

        Map<String, Object> headers = new LinkedHashMap<>();
        headers.put("lang", "java");
        headers.put("task", task);
        headers.put("id", id);
        headers.put("root_id", id);
        headers.put("parent_id", null);
        headers.put("group", null);
        headers.put("argsrepr", args.toString());
        headers.put("kwargsrepr", kwargs.toString());
        headers.put("origin", "jvm");

        Map<String, Object> properties = new LinkedHashMap<>();
        properties.put("correlation_id", id);
        properties.put("delivery_mode", 2);
        properties.put("delivery_info", Map.of("exchange", "", "routing_key", queue));
        properties.put("priority", priority);
        properties.put("body_encoding", "base64");
        properties.put("delivery_tag", UUID.randomUUID().toString());

        Map<String, Object> message = new LinkedHashMap<>();
        message.put("body", Base64.getEncoder().encodeToString(body));
        message.put("content-encoding", "utf-8");
        message.put("content-type", "application/json");
        message.put("headers", headers);
        message.put("properties", properties);
        return JSON.writeValueAsString(message);
    }

    /** Returns the id of the task in a message, and its positional arguments. */
    static Map<String, Object> read(String message) throws JsonProcessingException {
        Map<?, ?> parsed = JSON.readValue(message, Map.class);
        Map<?, ?> headers = (Map<?, ?>) parsed.get("headers");
        byte[] body = Base64.getDecoder().decode((String) parsed.get("body"));
        List<?> parts = JSON.readValue(new String(body, StandardCharsets.UTF_8), List.class);
        Map<String, Object> read = new LinkedHashMap<>();
        read.put("id", headers.get("id"));
        read.put("task", headers.get("task"));
        read.put("args", parts.isEmpty() ? Collections.emptyList() : parts.get(0));
        return read;
    }
}
