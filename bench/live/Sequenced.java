/* A member of a JGroups group with SEQUENCER under load: the counterpart of
 * ringcast.cli.bench_member, with the same words to its parent (JSON lines on stdout, the time to
 * begin on stdin; System.nanoTime is the monotonic clock that all processes have in common).
 *
 * usage: Sequenced STACK ID MEMBERS SENDERS SIZE RATE FLIGHT WARM SECONDS
 * RATE is that of all senders together, 0 is flat out with FLIGHT messages under way.
 */
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;
import org.jgroups.View;

public final class Sequenced extends ReceiverAdapter {
    private static final int HEAD = 24; /* sender, last word, number, time of sending */
    private static final int MOST_LATENCIES = 2_000_000;
    private static final int SAMPLES = 2000;
    private static final long DRAIN_S = 10, FORM_S = 20;
    private static final long STAGGER_MS = 1500;

    private final int id, senders, size;
    private final boolean flatOut;
    private final Semaphore room;
    private final CountDownLatch complete = new CountDownLatch(1), finished;
    private final int wanted;
    private volatile long startNs = Long.MAX_VALUE, endNs = Long.MAX_VALUE;

    /* Written by the one thread that delivers at a time. */
    private final long[] next;
    private final double[] latenciesMs = new double[MOST_LATENCIES];
    private int latencies;
    private volatile long total;
    private long wrong, order = 1469598103934665603L, lastNs, gapNs;

    private Sequenced(int id, int members, int senders, int size, boolean flatOut, int flight) {
        this.id = id;
        this.senders = senders;
        this.size = size;
        this.flatOut = flatOut;
        wanted = members;
        room = new Semaphore(flight);
        finished = new CountDownLatch(senders);
        next = new long[senders + 1];
    }

    @Override
    public void viewAccepted(View view) {
        if (view.size() >= wanted)
            complete.countDown();
    }

    @Override
    public synchronized void receive(Message message) {
        long now = System.nanoTime();
        ByteBuffer head = ByteBuffer.wrap(
            message.getRawBuffer(), message.getOffset(), message.getLength());
        int sender = head.getInt();
        boolean last = head.getInt() != 0;
        long number = head.getLong(), sentNs = head.getLong();
        if (lastNs >= startNs && now <= endNs && now - lastNs > gapNs)
            gapNs = now - lastNs;
        lastNs = now;
        if (last) {
            finished.countDown();
            return;
        }
        if (message.getLength() != size || number != next[sender])
            wrong++;
        next[sender] = number + 1;
        total++;
        order = (order ^ (sender * 1000003L + number)) * 1099511628211L;
        if (sender != id)
            return;
        if (flatOut)
            room.release();
        if (sentNs >= startNs && sentNs < endNs && latencies < MOST_LATENCIES)
            latenciesMs[latencies++] = (now - sentNs) / 1e6;
    }

    private Message body(long number, boolean last) {
        ByteBuffer body = ByteBuffer.allocate(last ? HEAD : size);
        body.putInt(id).putInt(last ? 1 : 0).putLong(number).putLong(System.nanoTime());
        return new Message(null, null, body.array());
    }

    private long send(JChannel channel, long beginNs, double rate) throws Exception {
        long sent = 0;
        double dueNs = beginNs + (rate > 0 ? 1e9 * id / rate : 0);
        while (System.nanoTime() < endNs) {
            if (flatOut) {
                if (!room.tryAcquire(10, TimeUnit.MILLISECONDS))
                    continue;
            } else {
                long waitNs = (long) dueNs - System.nanoTime();
                if (waitNs > 0) {
                    LockSupport.parkNanos(waitNs);
                    continue;
                }
                dueNs += 1e9 * senders / rate;
            }
            channel.send(body(sent++, false));
        }
        channel.send(body(sent, true));
        return sent;
    }

    private synchronized String share(double windowS, long messages, double cpuS, long sent) {
        StringBuilder delivered = new StringBuilder(), some = new StringBuilder();
        for (int sender = 1; sender <= senders; sender++)
            delivered.append(sender > 1 ? "," : "").append('"').append(sender).append("\":")
                .append(next[sender]);
        Arrays.sort(latenciesMs, 0, latencies);
        int step = Math.max(1, (latencies + SAMPLES - 1) / SAMPLES);
        for (int i = 0; i < latencies; i += step)
            some.append(i > 0 ? "," : "").append(String.format("%.4f", latenciesMs[i]));
        return String.format(
            "{\"say\":\"share\",\"id\":%d,\"window_s\":%.6f,\"messages\":%d,\"frames\":0,"
                + "\"cpu_s\":%.4f,\"gap_ms\":%.3f,\"sent\":%d,\"dropped\":0,\"wrong\":%d,"
                + "\"order\":%d,\"metrics\":{},\"delivered\":{%s},\"latencies_ms\":[%s]}",
            id, windowS, messages, cpuS, gapNs / 1e6, sent, wrong, order >>> 1, delivered, some);
    }

    private static double cpuS() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime() / 1e9;
    }

    public static void main(String[] words) throws Exception {
        int id = Integer.parseInt(words[1]), members = Integer.parseInt(words[2]);
        int senders = Integer.parseInt(words[3]), size = Integer.parseInt(words[4]);
        double rate = Double.parseDouble(words[5]);
        int flight = Integer.parseInt(words[6]);
        double warmS = Double.parseDouble(words[7]), seconds = Double.parseDouble(words[8]);
        size = Math.max(size, HEAD);
        Sequenced member = new Sequenced(id, members, senders, size, rate <= 0, flight);
        if (id > 1) /* members that look for each other at the same moment may all find nobody */
            Thread.sleep(STAGGER_MS);
        JChannel channel = new JChannel(words[0]);
        channel.setReceiver(member);
        channel.connect("bench");
        if (!member.complete.await(FORM_S, TimeUnit.SECONDS))
            Runtime.getRuntime().halt(1);
        System.out.println("{\"say\":\"ready\"}");

        BufferedReader parent = new BufferedReader(new InputStreamReader(System.in));
        String line = parent.readLine();
        if (line == null) /* the parent has gone */
            Runtime.getRuntime().halt(1);
        long beginNs = (long) (1e9 * Double.parseDouble(line));
        member.endNs = beginNs + (long) (1e9 * (warmS + seconds));
        member.startNs = beginNs + (long) (1e9 * warmS);
        long[] sent = {0};
        Thread sending = new Thread(() -> {
            try {
                LockSupport.parkNanos(beginNs - System.nanoTime());
                sent[0] = member.send(channel, beginNs, rate);
            } catch (Exception error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        if (id <= senders)
            sending.start();
        TimeUnit.NANOSECONDS.sleep(member.startNs - System.nanoTime());
        long fromNs = System.nanoTime(), messages = member.total;
        double cpu = cpuS();
        TimeUnit.NANOSECONDS.sleep(member.endNs - System.nanoTime());
        double windowS = (System.nanoTime() - fromNs) / 1e9;
        messages = member.total - messages;
        cpu = cpuS() - cpu;
        sending.join();
        member.finished.await(DRAIN_S, TimeUnit.SECONDS);
        System.out.println(member.share(windowS, messages, cpu, sent[0]));
        parent.readLine(); /* until the parent lets everybody leave */
        Runtime.getRuntime().halt(0);
    }
}
