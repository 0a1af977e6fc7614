/* Stand in for a host's Python: pass what the agent would read and write to standin/server.py.

   `python -S -E AGENT serve` connects to it. `python -S -E -c CODE ARCHIVE AGENT`, which stores the
   agent, makes an empty folder: a thousand agents that sleep would need 12 GB on one machine. */

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void write_all(int fd, const char *data, ssize_t size) {
    while (size > 0) {
        ssize_t written = write(fd, data, size);
        if (written <= 0)
            _exit(1);
        data += written;
        size -= written;
    }
}

int main(int argc, char **argv) {
    if (argc == 7 && !strcmp(argv[3], "-c")) {
        unlink(argv[5]);
        return mkdir(argv[6], 0700) != 0;
    }
    if (argc != 5)
        return 2;
    struct sockaddr_un server = {.sun_family = AF_UNIX};
    strncpy(server.sun_path, SOCKET, sizeof server.sun_path - 1);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(sock, (struct sockaddr *)&server, sizeof server))
        return 3;
    write_all(sock, argv[3], strlen(argv[3]));
    write_all(sock, "\n", 1);
    struct pollfd ends[2] = {{0, POLLIN}, {sock, POLLIN}};
    char buffer[16384];
    for (;;) {
        poll(ends, 2, -1);
        for (int from = 0; from < 2; from++) {
            if (!ends[from].revents)
                continue;
            ssize_t size = read(ends[from].fd, buffer, sizeof buffer);
            if (size <= 0)
                return 0;
            write_all(from ? 1 : sock, buffer, size);
        }
    }
}
