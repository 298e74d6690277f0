// Consumes a queue with Java 17 or later, without libraries.
//
//   DELAYQ_URL=http://127.0.0.1:5556 DELAYQ_TOKEN=dq_... java Consume.java QUEUE

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

public class Consume {
    static final String URL = System.getenv("DELAYQ_URL");
    static final String TOKEN = System.getenv("DELAYQ_TOKEN");
    static final long LEASE_S = Long.parseLong(System.getenv().getOrDefault("DELAYQ_LEASE_S", "60"));
    static final String RETRY_S = System.getenv().getOrDefault("DELAYQ_RETRY_S", "30");
    static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    static final ScheduledExecutorService TIMER = Executors.newScheduledThreadPool(1, action -> {
        Thread thread = new Thread(action, "extend");
        thread.setDaemon(true);
        return thread;
    });
    static volatile boolean stopping = false;

    /** Your work. An exception puts the message back; it comes again after DELAYQ_RETRY_S. */
    static void work(Map<String, Object> message) throws Exception {
        Map<?, ?> kwargs = (Map<?, ?>) message.get("kwargs");
        if (Boolean.TRUE.equals(kwargs.get("fail")) && !Boolean.TRUE.equals(message.get("redelivered"))) {
            throw new IllegalStateException("not yet");
        }
        if (kwargs.get("seconds") instanceof Number seconds) {
            Thread.sleep((long) (seconds.doubleValue() * 1000));
        }
        System.out.println(message.get("task") + " " + message.get("id") + " " + message.get("args") + " done");
    }

    public static void main(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join(30_000); // what was taken is done, or released, first
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        String queue = URLEncoder.encode(arguments[0], StandardCharsets.UTF_8).replace("+", "%20");
        while (!stopping) {
            HttpResponse<String> answer;
            try {
                answer = call("/v1/queues/" + queue + ":take?wait=5s&max=1&lease=" + LEASE_S + "s", "");
            } catch (IOException away) {
                Thread.sleep(2000);
                continue;
            }
            if (answer.statusCode() == 429 || answer.statusCode() >= 500) {
                Thread.sleep(2000);
            } else if (answer.statusCode() != 200) {
                throw new IllegalStateException(answer.body()); // our mistake, such as a wrong token
            } else {
                handle(Json.object(Json.read(answer.body())));
            }
        }
    }

    static void handle(Map<String, Object> taken) throws Exception {
        if (taken.get("lease") == null) {
            return; // nothing came in time
        }
        String lease = "/v1/leases/" + Json.object(taken.get("lease")).get("id");
        var extending = TIMER.scheduleAtFixedRate(
            () -> settle(lease + ":extend", "{\"seconds\": " + LEASE_S + "}"),
            LEASE_S * 500, LEASE_S * 500, TimeUnit.MILLISECONDS);
        for (Object one : (List<?>) taken.get("messages")) {
            Map<String, Object> message = Json.object(one);
            String tags = "{\"tags\": [\"" + message.get("tag") + "\"]";
            try {
                work(message);
            } catch (Exception error) {
                System.err.println(message.get("task") + " " + message.get("id") + ": " + error.getMessage());
                settle(lease + ":release", tags + ", \"delay\": " + RETRY_S + "}");
                continue;
            }
            settle(lease + ":ack", tags + "}");
        }
        extending.cancel(false);
    }

    /** Answers for a lease. Status 410: it ended before, so its messages come again. */
    static void settle(String path, String body) {
        try {
            HttpResponse<String> answer = call(path, body);
            if (answer.statusCode() != 200) {
                System.err.println(path + ": " + answer.body());
            }
        } catch (IOException | InterruptedException error) {
            System.err.println(path + ": " + error);
        }
    }

    static HttpResponse<String> call(String path, String body) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(URL + path))
            .header("Authorization", "Bearer " + TOKEN)
            .header("Content-Type", "application/json")
            .timeout(Duration.ofSeconds(90))
            .POST(HttpRequest.BodyPublishers.ofString(body))
            .build();
        return CLIENT.send(request, HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
    }

    /** Reads JSON, which the JDK does not. Use the library that your program has. */
    static final class Json {
        private final String text;
        private int at = 0;

        private Json(String text) {
            this.text = text;
        }

        static Object read(String text) {
            return new Json(text).value();
        }

        @SuppressWarnings("unchecked")
        static Map<String, Object> object(Object value) {
            return (Map<String, Object>) value;
        }

        private Object value() {
            switch (peek()) {
                case '{': {
                    Map<String, Object> found = new LinkedHashMap<>();
                    while (opened('}')) {
                        String name = string();
                        peek();
                        at++; // the colon
                        found.put(name, value());
                    }
                    return found;
                }
                case '[': {
                    List<Object> found = new ArrayList<>();
                    while (opened(']')) {
                        found.add(value());
                    }
                    return found;
                }
                case '"':
                    return string();
                default: {
                    int from = at;
                    while (at < text.length() && ",]} \n\r\t".indexOf(text.charAt(at)) < 0) {
                        at++;
                    }
                    String word = text.substring(from, at);
                    return switch (word) {
                        case "true" -> true;
                        case "false" -> false;
                        case "null" -> null;
                        default -> word.matches("-?\\d{1,18}") ? (Object) Long.valueOf(word) : (Object) Double.valueOf(word);
                    };
                }
            }
        }

        /** Steps over a bracket or comma. Returns whether a value follows. */
        private boolean opened(char end) {
            if (peek() != end) {
                at++;
            }
            if (peek() == end) {
                at++;
                return false;
            }
            return true;
        }

        private char peek() {
            while (Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return text.charAt(at);
        }

        private String string() {
            StringBuilder found = new StringBuilder();
            peek();
            for (at++; text.charAt(at) != '"'; at++) {
                char next = text.charAt(at);
                if (next == '\\') {
                    next = text.charAt(++at);
                    switch (next) {
                        case 'u' -> {
                            next = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
                            at += 4;
                        }
                        case 'b' -> next = '\b';
                        case 'f' -> next = '\f';
                        case 'n' -> next = '\n';
                        case 'r' -> next = '\r';
                        case 't' -> next = '\t';
                        default -> { }
                    }
                }
                found.append(next);
            }
            at++;
            return found.toString();
        }
    }
}
