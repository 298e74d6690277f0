import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Hosts a Redisson client: takes commands on stdin, a line of JSON each, and answers each on stdout with a line. */
public final class Host {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int IN_FLIGHT = 200;

    private final RedissonClient client;
    /** The delayed queues whose transfer task runs here. */
    private final Map<String, RDelayedQueue<String>> held = new HashMap<>();

    private Host(String address) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(4);
        client = Redisson.create(config);
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Host host = new Host(args[0]);
        out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("value", host.answer(JSON.readTree(line)));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        host.client.shutdown();
    }

    private Object answer(JsonNode command) throws Exception {
        String queue = command.path("queue").asText();
        switch (text(command, "do")) {
            case "message":
                return message(command, text(command, "id"));
            case "offer":
                return with(queue, delayed -> offer(delayed, text(command, "message"), number(command, "delay_ms")));
            case "offer_many":
                return with(queue, delayed -> offerMany(delayed, command));
            case "remove":
                return with(queue, delayed -> delayed.remove(text(command, "message")));
            case "poll":
                return ready(queue).poll(number(command, "timeout_ms"), TimeUnit.MILLISECONDS);
            case "read":
                return CeleryMessage.read(text(command, "message"));
            case "size":
                return with(queue, RDelayedQueue::size);
            case "contains":
                return with(queue, delayed -> delayed.contains(text(command, "message")));
            case "poll_delayed":
                return with(queue, RDelayedQueue::poll);
            case "start":
                held.put(queue, client.getDelayedQueue(ready(queue)));
                return true;
            case "stop":
                held.remove(queue).destroy();
                return true;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private RBlockingQueue<String> ready(String queue) {
        return client.getBlockingQueue(queue);
    }

    /** Uses a delayed queue, and leaves no transfer task behind that "start" has not asked for. */
    private <T> T with(String queue, Function<RDelayedQueue<String>, T> use) {
        RDelayedQueue<String> known = held.get(queue);
        if (known != null) {
            return use.apply(known);
        }
        RDelayedQueue<String> delayed = client.getDelayedQueue(ready(queue));
        try {
            return use.apply(delayed);
        } finally {
            delayed.destroy();
        }
    }

    private boolean offer(RDelayedQueue<String> delayed, String message, long delayMs) {
        delayed.offer(message, delayMs, TimeUnit.MILLISECONDS);
        return true;
    }

    private static String text(JsonNode command, String name) {
        return command.get(name).asText();
    }

    private static long number(JsonNode command, String name) {
        return command.get(name).asLong();
    }

    private static String message(JsonNode command, String id) {
        try {
            List<?> args = JSON.convertValue(command.get("args"), List.class);
            int priority = command.path("priority").asInt(0);
            return CeleryMessage.of(id, text(command, "task"), text(command, "queue"), priority, args, Map.of());
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }

    /** Offers a message for each id, due evenly from delay_ms on, over spread_ms. */
    private static int offerMany(RDelayedQueue<String> delayed, JsonNode command) {
        long begin = System.currentTimeMillis() + number(command, "delay_ms");
        JsonNode ids = command.get("ids");
        List<CompletableFuture<?>> sent = new ArrayList<>();
        for (int i = 0; i < ids.size(); i++) {
            long dueMs = begin + number(command, "spread_ms") * i / ids.size();
            long delayMs = Math.max(0, dueMs - System.currentTimeMillis());
            String message = message(command, ids.get(i).asText());
            sent.add(delayed.offerAsync(message, delayMs, TimeUnit.MILLISECONDS).toCompletableFuture());
            if (sent.size() == IN_FLIGHT || i == ids.size() - 1) {
                CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).join();
                sent.clear();
            }
        }
        return ids.size();
    }
}
