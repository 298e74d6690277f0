package shop;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.UUID;
import org.redisson.Redisson;
import org.redisson.api.RBlockingDeque;
import org.redisson.api.RBucket;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** A queue of Celery tasks, delayed ones among them, that JVM services share with Celery apps. */
public final class SharedQueue implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final RedissonClient redisson;
    private final String name;
    private final RBlockingDeque<String> ready;
    private final RDelayedQueue<String> delayed;

    /**
     * Connects to database 0 of a Redis.
     *
     * @param address such as redis://localhost:6379
     * @param name of the queue, with the app's global_keyprefix before it if there is one
     */
    public SharedQueue(String address, String name) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE); // a message is text
        config.useSingleServer().setAddress(address);
        this.redisson = Redisson.create(config);
        this.name = name;
        this.ready = redisson.getBlockingDeque(name);
        this.delayed = redisson.getDelayedQueue(ready);
        this.delayed.destroy(); // Celery's side moves what is due; this JVM only offers and removes
    }

    /** Sends a task with positional arguments to Celery. Returns its id. */
    public String offer(String task, ArrayNode args, Duration delay) {
        String id = UUID.randomUUID().toString();
        String message = message(task, id, args);
        if (delay.isZero()) {
            ready.addFirst(message);
        } else {
            delayed.offer(message, delay.toMillis(), MILLISECONDS);
        }
        return id;
    }

    /** Makes sure that a task which was offered with these arguments does not wait any more. */
    public void remove(String task, String id, ArrayNode args) {
        String message = message(task, id, args);
        while (delayed.remove(message)) {
            continue; // what was found may have left already: a true says nothing
        }
    }

    /** Takes a task as Celery's workers do, highest priority first. Returns null when none comes. */
    public JsonNode take(Duration timeout) throws InterruptedException {
        String[] others = {name + "\u0006\u00163", name + "\u0006\u00166", name + "\u0006\u00169"};
        String message = ready.pollLastFromAny(timeout.toMillis(), MILLISECONDS, others);
        return message == null ? null : parsed(message);
    }

    /** Returns what a task was called with: positional arguments, keyword arguments, callbacks. */
    public static JsonNode body(JsonNode message) {
        byte[] json = Base64.getDecoder().decode(message.at("/body").asText());
        return parsed(new String(json, UTF_8));
    }

    /** Gives a task its result, as Celery's Redis result backend in the same database keeps it. */
    public void answer(JsonNode message, String result) {
        String id = message.at("/headers/id").asText();
        ObjectNode meta = JSON.createObjectNode().put("task_id", id).put("status", "SUCCESS").put("result", result);
        meta.put("date_done", Instant.now().toString()).putNull("traceback").putArray("children");
        String key = "celery-task-meta-" + id;
        RBucket<String> bucket = redisson.getBucket(key);
        bucket.set(meta.toString(), Duration.ofDays(1));
        redisson.getTopic(key).publish(meta.toString());
    }

    @Override
    public void close() {
        redisson.shutdown();
    }

    /** Returns a task as Celery's protocol 2 writes it, always the same text for the same task. */
    private String message(String task, String id, ArrayNode args) {
        ArrayNode body = JSON.createArrayNode().add(args).add(JSON.createObjectNode());
        body.addObject().putNull("callbacks").putNull("errbacks").putNull("chain").putNull("chord");

        ObjectNode message = JSON.createObjectNode();
        message.put("body", Base64.getEncoder().encodeToString(body.toString().getBytes(UTF_8)));
        message.put("content-type", "application/json").put("content-encoding", "utf-8");

        ObjectNode headers = message.putObject("headers").put("lang", "java").put("task", task).put("id", id);
        headers.put("root_id", id).putNull("parent_id").putNull("group").putNull("eta").put("retries", 0);

        ObjectNode properties = message.putObject("properties").put("correlation_id", id).put("delivery_tag", id);
        properties.put("delivery_mode", 2).put("priority", 0).put("body_encoding", "base64");
        properties.putObject("delivery_info").put("exchange", "").put("routing_key", name);
        return message.toString();
    }

    private static JsonNode parsed(String text) {
        try {
            return JSON.readTree(text);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("this is no Celery message: " + text, error);
        }
    }
}
