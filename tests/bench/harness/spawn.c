/* spawn N DIR: posix_spawn /bin/true N times, one after another, each with two new output files in DIR, and
   wait for each. Prints seconds. This is the limit: whatever starts commands has to do at least this. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int n = atoi(argv[1]), status;
    char *command[] = {"/bin/true", NULL}, out[4096], err[4096];
    struct timespec began, ended;
    pid_t pid;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int i = 0; i < n; i++) {
        posix_spawn_file_actions_t files;
        snprintf(out, sizeof out, "%s/%d.stdout", argv[2], i);
        snprintf(err, sizeof err, "%s/%d.stderr", argv[2], i);
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&files, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        posix_spawn_file_actions_addopen(&files, 2, err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (posix_spawn(&pid, command[0], &files, NULL, command, environ)) return 1;
        if (waitpid(pid, &status, 0) != pid || status) return 1;
        posix_spawn_file_actions_destroy(&files);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.6f\n", (ended.tv_sec - began.tv_sec) + (ended.tv_nsec - began.tv_nsec) / 1e9);
    return 0;
}
