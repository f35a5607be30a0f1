/* A member of a corosync process group under load: the counterpart of ringcast.cli.bench_member,
 * with the same words to its parent (JSON lines on stdout, the time to begin on stdin).
 *
 * usage: cpg ID MEMBERS SENDERS SIZE RATE FLIGHT WARM SECONDS
 * RATE is that of all senders together, 0 is flat out with FLIGHT messages under way.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#define MOST_NODES 64
#define MOST_LATENCIES 2000000
#define SAMPLES 2000
#define DRAIN_S 10.0

struct head {
    uint32_t sender;
    uint32_t last; /* the sender's last word */
    uint64_t number;
    double sent_s;
};

static int id, members_wanted, senders, size, flight;
static double rate, start_s = 1e300, end_s = 1e300;

static size_t members_now;
static int in_group[MOST_NODES], finished[MOST_NODES];
static uint64_t next_number[MOST_NODES], total, wrong, order = 1469598103934665603ULL;
static uint64_t under_way, sent;
static double last_s, gap_s, latencies_ms[MOST_LATENCIES];
static int latencies;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec
        + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static void on_deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node,
                       uint32_t pid, void *message, size_t length)
{
    const struct head *head = message;
    double t = now();
    if (last_s >= start_s && t <= end_s && t - last_s > gap_s)
        gap_s = t - last_s;
    last_s = t;
    if (head->last) {
        finished[head->sender] = 1;
        return;
    }
    if (length != (size_t)size || head->number != next_number[head->sender])
        wrong++;
    next_number[head->sender] = head->number + 1;
    total++;
    order = (order ^ (head->sender * 1000003ULL + head->number)) * 1099511628211ULL;
    if (head->sender == (uint32_t)id) {
        under_way--;
        if (head->sent_s >= start_s && head->sent_s < end_s && latencies < MOST_LATENCIES)
            latencies_ms[latencies++] = 1e3 * (t - head->sent_s);
    }
}

static void on_change(cpg_handle_t handle, const struct cpg_name *group,
                      const struct cpg_address *members, size_t count,
                      const struct cpg_address *left, size_t left_count,
                      const struct cpg_address *joined, size_t joined_count)
{
    members_now = count;
    memset(in_group, 0, sizeof in_group);
    for (size_t i = 0; i < count; i++)
        in_group[members[i].nodeid] = 1;
}

static int all_finished(void)
{
    for (int sender = 1; sender <= senders; sender++)
        if (in_group[sender] && !finished[sender])
            return 0;
    return 1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sends one message; 1 if it was accepted, 0 if corosync asks to try again. */
static int send_one(cpg_handle_t handle, char *body, int last)
{
    struct head *head = (struct head *)body;
    *head = (struct head){id, last, sent, now()};
    struct iovec part = {body, last ? sizeof *head : (size_t)size};
    cs_error_t error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1);
    if (error == CS_OK)
        return 1;
    if (error != CS_ERR_TRY_AGAIN) {
        fprintf(stderr, "cpg_mcast_joined: error %d\n", error);
        exit(1);
    }
    return 0;
}

static void serve(cpg_handle_t handle, int fd, double wait_s)
{
    struct pollfd ready = {fd, POLLIN, 0};
    struct timespec wait = {(time_t)wait_s, (long)((wait_s - (time_t)wait_s) * 1e9)};
    ppoll(&ready, 1, &wait, NULL);
    if (ready.revents) {
        cs_error_t error = cpg_dispatch(handle, CS_DISPATCH_ALL);
        if (error != CS_OK && error != CS_ERR_TRY_AGAIN) {
            fprintf(stderr, "cpg_dispatch: error %d\n", error);
            exit(1);
        }
    }
}

static void report(double window_s, uint64_t messages, double used_s)
{
    qsort(latencies_ms, latencies, sizeof *latencies_ms, ascending);
    printf("{\"say\":\"share\",\"id\":%d,\"window_s\":%.6f,\"messages\":%lu,\"frames\":0,"
           "\"cpu_s\":%.4f,\"gap_ms\":%.3f,\"sent\":%lu,\"dropped\":0,\"wrong\":%lu,"
           "\"order\":%lu,\"metrics\":{},\"delivered\":{",
           id, window_s, messages, used_s, 1e3 * gap_s, sent, wrong, order >> 1);
    for (int sender = 1; sender <= senders; sender++)
        printf("%s\"%d\":%lu", sender > 1 ? "," : "", sender, next_number[sender]);
    printf("},\"latencies_ms\":[");
    int step = (latencies + SAMPLES - 1) / SAMPLES;
    for (int i = 0; i < latencies; i += step)
        printf("%s%.4f", i ? "," : "", latencies_ms[i]);
    printf("]}\n");
    fflush(stdout);
}

int main(int count, char **words)
{
    if (count != 9) {
        fprintf(stderr, "usage: cpg ID MEMBERS SENDERS SIZE RATE FLIGHT WARM SECONDS\n");
        return 2;
    }
    id = atoi(words[1]);
    members_wanted = atoi(words[2]);
    senders = atoi(words[3]);
    size = atoi(words[4]);
    rate = atof(words[5]);
    flight = atoi(words[6]);
    double warm_s = atof(words[7]), seconds = atof(words[8]);
    if (size < (int)sizeof(struct head))
        size = sizeof(struct head);
    if (id >= MOST_NODES || members_wanted >= MOST_NODES)
        return 2;

    cpg_handle_t handle;
    cpg_callbacks_t calls = {.cpg_deliver_fn = on_deliver, .cpg_confchg_fn = on_change};
    struct cpg_name group = {.length = 5, .value = "bench"};
    struct timespec pause = {0, 20000000};
    cs_error_t error = CS_ERR_TRY_AGAIN;
    for (int i = 0; i < 500 && (error = cpg_initialize(&handle, &calls)) != CS_OK; i++)
        nanosleep(&pause, NULL);
    for (int i = 0; i < 500 && error == CS_OK && (error = cpg_join(handle, &group)) != CS_OK; i++) {
        if (error == CS_ERR_TRY_AGAIN)
            error = CS_OK;
        nanosleep(&pause, NULL);
    }
    if (error != CS_OK) {
        fprintf(stderr, "cannot join: error %d\n", error);
        return 1;
    }
    int fd;
    cpg_fd_get(handle, &fd);
    while (members_now < (size_t)members_wanted)
        serve(handle, fd, 0.05);
    printf("{\"say\":\"ready\"}\n");
    fflush(stdout);

    char line[64];
    struct pollfd parent = {0, POLLIN, 0};
    while (!poll(&parent, 1, 0))
        serve(handle, fd, 0.01);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    double begin_s = atof(line);
    start_s = begin_s + warm_s;
    end_s = start_s + seconds;

    char *body = calloc(1, size);
    int sending = id <= senders;
    double due_s = rate > 0 ? begin_s + id / rate : begin_s;
    double window_from = 0, used_from = 0;
    uint64_t messages_from = 0;
    for (double t = now(); t < end_s; t = now()) {
        if (!window_from && t >= start_s) {
            window_from = t;
            messages_from = total;
            used_from = cpu_s();
        }
        int again = 0;
        for (int i = 0; i < 16 && sending && t >= begin_s && !again; i++) {
            if (rate > 0 ? now() < due_s : under_way >= (uint64_t)flight)
                break;
            if (send_one(handle, body, 0)) {
                sent++;
                under_way++;
                due_s += senders / rate;
            } else {
                again = 1;
            }
        }
        double wait_s = 0.001;
        if (sending && t >= begin_s && !again) {
            if (rate > 0)
                wait_s = due_s - now() < wait_s ? due_s - now() : wait_s;
            else if (under_way < (uint64_t)flight)
                wait_s = 0;
        }
        serve(handle, fd, wait_s > 0 ? wait_s : 0);
    }
    double window_s = now() - window_from, used_s = cpu_s() - used_from;
    uint64_t messages = total - messages_from;
    while (sending && !send_one(handle, body, 1))
        serve(handle, fd, 0.001);
    double deadline_s = now() + DRAIN_S;
    while (!all_finished() && now() < deadline_s)
        serve(handle, fd, 0.01);
    report(window_s, messages, used_s);
    while (!poll(&parent, 1, 0)) /* until the parent lets everybody leave */
        serve(handle, fd, 0.01);
    cpg_finalize(handle);
    return 0;
}
