/* The floor under a call: a parent sends one small datagram to each of N forked children over SEQPACKET socket
 * pairs, then receives one from each. `floor N`; each line on stdin is a number of rounds, each line on stdout the
 * median of their microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64, ROOM = 65536 };

static char buffer[ROOM];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void echo(int fd) {
    ssize_t size;
    while ((size = recv(fd, buffer, ROOM, 0)) > 0)
        if (send(fd, buffer, size, MSG_NOSIGNAL) < 0) break;
    _exit(0);
}

static int start(int *ours, int have) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) return 1;
    if (fork() == 0) {
        /* A child that held the others' ends would keep them alive when the parent has gone. */
        for (int i = 0; i < have; i++) close(ours[i]);
        close(ends[0]);
        echo(ends[1]);
    }
    close(ends[1]);
    ours[have] = ends[0];
    return 0;
}

static double round_of(const int *fds, int n) {
    double started = now();
    for (int i = 0; i < n; i++)
        if (send(fds[i], buffer, SIZE, MSG_NOSIGNAL) != SIZE) exit(3);
    for (int i = 0; i < n; i++)
        if (recv(fds[i], buffer, ROOM, 0) != SIZE) exit(3);
    return now() - started;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 0, rounds;
    if (n < 1 || n > 1024) return 2;
    int fds[1024];
    for (int i = 0; i < n; i++)
        if (start(fds, i)) return 2;
    while (scanf("%d", &rounds) == 1 && rounds > 0) {
        double *times = malloc(rounds * sizeof *times);
        for (int i = 0; i < rounds; i++) times[i] = round_of(fds, n);
        qsort(times, rounds, sizeof *times, by_value);
        printf("%f\n", times[rounds / 2]);
        fflush(stdout);
        free(times);
    }
    return 0;
}
