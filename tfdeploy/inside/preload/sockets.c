/* Preloaded into each process of a task (LD_PRELOAD): who may connect to its ports, and how its own
 * connections notice that the other side is gone.
 *
 * TensorFlow's server asks for no password and listens on all addresses: whoever connects can run
 * operations as its user. So accept() and accept4() reset, before a byte is read, each connection
 * except
 * - from another machine: from an address that is listed in the file TFDEPLOY_PEERS, one in a line;
 *   "10.0.0.1 21000 21127" lists only these ports of it, from the first to the last;
 * - from this machine: from a process of this user, or of root, as the kernel answers (sock_diag(7))
 *   or, where it has no such answer, as /proc/net/tcp shows (proc(5)). Of a connection that its
 *   process has closed already, the kernel knows no user; NCCL's processes meet in this way. Then its
 *   port decides: it must be one of TFDEPLOY_LOCAL_PORTS, "61440 61471".
 * Without TFDEPLOY_PEERS everybody may connect.
 *
 * connect() turns on TCP keepalive (tcp(7)). gRPC's clients do not use it: a call whose server has
 * lost the connection would wait for its answer forever. It connects to this machine from one of
 * TFDEPLOY_LOCAL_PORTS, and to others from one of TFDEPLOY_SOURCE_PORTS, by which they know this
 * user: while the task's supervisor holds them, no other user's socket can be bound to them
 * (SO_REUSEPORT, socket(7)).
 *
 * Only functions of glibc 2.17 and raw system calls are used, so that it loads on any host on which
 * TensorFlow does. build.sh builds it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* A connection of which one side is gone is noticed after KEEPALIVE_S seconds, as the other side's
 * system says so. A connection without any answer ends after KEEPALIVE_S * KEEPALIVE_PROBES: a
 * network that is lost for some minutes costs no task its connections. */
#define KEEPALIVE_S 15
#define KEEPALIVE_PROBES 20
#define LINE_BYTES 512
#define TABLE_READS 3

/* A test compares it with this file. */
__attribute__((used)) static const char source_sha256[] = SOURCE_SHA256;

static char peers_file[4096];
static int is_guarded;
static struct range {
    unsigned first, last; /* 0: none */
} local_ports, source_ports;

static struct range read_range(const char *name)
{
    struct range found, none = {0};
    const char *text = getenv(name);
    if (!text || sscanf(text, "%u %u", &found.first, &found.last) != 2 || found.first > found.last)
        return none;
    return found;
}

__attribute__((constructor)) static void read_settings(void)
{
    const char *path = getenv("TFDEPLOY_PEERS");
    is_guarded = path != NULL;
    if (path && strlen(path) < sizeof peers_file)
        strcpy(peers_file, path); /* else the list is empty: only this host's own user is admitted */
    local_ports = read_range("TFDEPLOY_LOCAL_PORTS");
    source_ports = read_range("TFDEPLOY_SOURCE_PORTS");
}

/* One end of a connection. An IPv4 address is written as IPv6 does: ::ffff:a.b.c.d. */
struct endpoint {
    struct in6_addr address;
    unsigned port;
};

static void map_ipv4(struct in6_addr *address, in_addr_t ipv4)
{
    memset(address, 0, sizeof *address);
    address->s6_addr[10] = address->s6_addr[11] = 0xff;
    memcpy(&address->s6_addr[12], &ipv4, sizeof ipv4);
}

/* Returns 0 for a socket that is not one of the internet. */
static int to_endpoint(const struct sockaddr_storage *from, struct endpoint *to)
{
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)from;
        map_ipv4(&to->address, ipv4->sin_addr.s_addr);
        to->port = ntohs(ipv4->sin_port);
        return 1;
    }
    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)from;
        to->address = ipv6->sin6_addr;
        to->port = ntohs(ipv6->sin6_port);
        return 1;
    }
    return 0;
}

static int is_same(const struct endpoint *one, const struct endpoint *other)
{
    return one->port == other->port && !memcmp(&one->address, &other->address, sizeof one->address);
}

static void to_text(const struct in6_addr *address, char text[INET6_ADDRSTRLEN])
{
    if (IN6_IS_ADDR_V4MAPPED(address))
        inet_ntop(AF_INET, &address->s6_addr[12], text, INET6_ADDRSTRLEN);
    else
        inet_ntop(AF_INET6, address, text, INET6_ADDRSTRLEN);
}

/* Calls `found` with each line of a file until it returns something other than 0; returns that. */
static int each_line(const char *path, int (*found)(const char *line, void *wanted), void *wanted)
{
    char line[LINE_BYTES], part[4096];
    size_t size = 0;
    ssize_t count;
    int result = 0, file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    while (!result && (count = read(file, part, sizeof part)) > 0)
        for (ssize_t i = 0; i < count && !result; i++)
            if (part[i] == '\n') {
                line[size] = 0;
                size = 0;
                result = found(line, wanted);
            } else if (size < sizeof line - 1) {
                line[size++] = part[i];
            }
    close(file);
    return result;
}

struct peer {
    char address[INET6_ADDRSTRLEN];
    unsigned port;
};

static int is_listed(const char *line, void *wanted)
{
    const struct peer *peer = wanted;
    unsigned first, last;
    size_t size = strlen(peer->address);
    if (strncmp(line, peer->address, size))
        return 0;
    if (!line[size])
        return 1;
    return sscanf(line + size, " %u %u", &first, &last) == 2 && line[size] == ' ' &&
           first <= peer->port && peer->port <= last;
}

/* Reads `0100007F:08AE` or, for IPv6, four such words; returns what follows, NULL if it is other. */
static const char *read_endpoint(const char *text, struct endpoint *to)
{
    uint32_t words[4];
    int count = 0;
    while (*text == ' ')
        text++;
    for (; count < 4 && strspn(text, "0123456789ABCDEF") >= 8; count++, text += 8) {
        char word[9] = {0};
        memcpy(word, text, 8);
        words[count] = strtoul(word, NULL, 16);
    }
    if (*text++ != ':' || (count != 1 && count != 4))
        return NULL;
    if (count == 1)
        map_ipv4(&to->address, words[0]);
    else
        memcpy(&to->address, words, sizeof words);
    to->port = strtoul(text, NULL, 16);
    return text + strcspn(text, " ");
}

enum owner { UNKNOWN, OURS, FOREIGN };

struct connection {
    struct endpoint peer, own;
};

/* A socket that its process has closed has inode 0, and a user that means nothing. */
static enum owner owner_of(unsigned user, unsigned long inode, unsigned port)
{
    int is_ours = inode ? user == geteuid() || user == 0
                        : local_ports.first && local_ports.first <= port && port <= local_ports.last;
    return is_ours ? OURS : FOREIGN;
}

/* Returns who owns the peer's socket if this row of /proc/net/tcp or tcp6 is its own. */
static int owner_in_row(const char *row, void *wanted)
{
    const struct connection *connection = wanted;
    struct endpoint local, remote;
    unsigned user;
    unsigned long inode;
    if (!(row = strchr(row, ':')) || !(row = read_endpoint(row + 1, &local)))
        return UNKNOWN;
    if (!is_same(&local, &connection->peer) || !(row = read_endpoint(row, &remote)))
        return UNKNOWN;
    if (!is_same(&remote, &connection->own))
        return UNKNOWN;
    if (sscanf(row, " %*x %*x:%*x %*x:%*x %*x %u %*d %lu", &user, &inode) != 2)
        return FOREIGN;
    return owner_of(user, inode, local.port);
}

static void to_id(const struct endpoint *end, int family, __be16 *port, __be32 *address)
{
    *port = htons(end->port);
    if (family == AF_INET)
        memcpy(address, &end->address.s6_addr[12], 4);
    else
        memcpy(address, &end->address, sizeof end->address);
}

/* Returns a socket for questions to the kernel, or -1. */
static int open_kernel(void)
{
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

/* Asks the kernel for the one socket of this host that connects `local` to `remote`, which costs
 * microseconds; a table of all sockets costs milliseconds on a machine with much memory. Returns
 * its owner, UNKNOWN if there is none or the kernel has no answer. */
static enum owner ask_kernel(int kernel, const struct endpoint *local,
                             const struct endpoint *remote)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 socket;
    } question = {0};
    struct {
        struct nlmsghdr header;
        struct inet_diag_msg socket;
        char attributes[1024];
    } answer;
    struct inet_diag_sockid *id = &question.socket.id;
    int both_ipv4 = IN6_IS_ADDR_V4MAPPED(&local->address) && IN6_IS_ADDR_V4MAPPED(&remote->address);
    int family = both_ipv4 ? AF_INET : AF_INET6;
    question.header.nlmsg_len = sizeof question;
    question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.header.nlmsg_flags = NLM_F_REQUEST;
    question.socket.sdiag_family = family;
    question.socket.sdiag_protocol = IPPROTO_TCP;
    to_id(local, family, &id->idiag_sport, id->idiag_src);
    to_id(remote, family, &id->idiag_dport, id->idiag_dst);
    memset(id->idiag_cookie, 0xff, sizeof id->idiag_cookie); /* INET_DIAG_NOCOOKIE */
    ssize_t size = send(kernel, &question, sizeof question, 0);
    if (size == sizeof question)
        size = recv(kernel, &answer, sizeof answer, MSG_DONTWAIT);
    if (size < (ssize_t)offsetof(typeof(answer), attributes) ||
        answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return UNKNOWN;
    /* Without a connection, the kernel finds the listener on its port. */
    if (answer.socket.id.idiag_sport != id->idiag_sport ||
        answer.socket.id.idiag_dport != id->idiag_dport)
        return UNKNOWN;
    return owner_of(answer.socket.idiag_uid, answer.socket.idiag_inode, local->port);
}

/* A table may lack a row that was just moved, so it is read more than once. */
static enum owner local_owner(struct connection *connection)
{
    int is_same_address =
        !memcmp(&connection->peer.address, &connection->own.address, sizeof(struct in6_addr));
    int kernel = open_kernel();
    enum owner answered = ask_kernel(kernel, &connection->peer, &connection->own);
    /* The own end always exists: if the kernel finds it, it would have found the other one. */
    int is_remote = !answered && !is_same_address &&
                    ask_kernel(kernel, &connection->own, &connection->peer);
    if (kernel >= 0)
        close(kernel);
    if (answered || is_remote)
        return answered; /* UNKNOWN for the usual peer: on another machine */
    for (int i = 0; i < TABLE_READS; i++) {
        int owner = each_line("/proc/net/tcp6", owner_in_row, connection);
        if (!owner)
            owner = each_line("/proc/net/tcp", owner_in_row, connection);
        if (owner)
            return owner;
        if (!is_same_address)
            break;
    }
    return UNKNOWN;
}

static void report_refusal(const char *peer)
{
    static unsigned refused;
    unsigned count = __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
    char line[LINE_BYTES];
    if (count & (count - 1)) /* the 1st, 2nd, 4th, 8th ... */
        return;
    int size = snprintf(line, sizeof line,
                        "tfdeploy: refused a connection from %s (%u so far): it is neither from a "
                        "host of this run nor from your own user on this host\n", peer, count);
    if (write(STDERR_FILENO, line, size) < 0)
        return;
}

static int may_connect(int socket)
{
    struct sockaddr_storage peer, own;
    socklen_t peer_size = sizeof peer, own_size = sizeof own;
    struct connection connection;
    struct peer from;
    if (!is_guarded)
        return 1;
    if (getpeername(socket, (struct sockaddr *)&peer, &peer_size) ||
        getsockname(socket, (struct sockaddr *)&own, &own_size))
        return 0; /* it is gone already */
    if (!to_endpoint(&peer, &connection.peer) || !to_endpoint(&own, &connection.own))
        return 1;
    to_text(&connection.peer.address, from.address);
    from.port = connection.peer.port;
    enum owner owner = local_owner(&connection);
    if (owner == OURS || (owner == UNKNOWN && each_line(peers_file, is_listed, &from)))
        return 1;
    report_refusal(from.address);
    return 0;
}

static void reset(int socket)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(socket);
}

int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
    socklen_t room = size ? *size : 0;
    for (;;) {
        int socket = syscall(SYS_accept4, listener, address, size, flags);
        if (socket < 0 || may_connect(socket))
            return socket;
        reset(socket);
        if (size)
            *size = room;
    }
}

int accept(int listener, struct sockaddr *address, socklen_t *size)
{
    return accept4(listener, address, size, 0);
}

static int get_option(int socket, int option)
{
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(socket, SOL_SOCKET, option, &value, &size) ? -1 : value;
}

static void keep_alive(int socket)
{
    int on = 1, seconds = KEEPALIVE_S, probes = KEEPALIVE_PROBES;
    if (get_option(socket, SO_TYPE) != SOCK_STREAM || get_option(socket, SO_KEEPALIVE))
        return; /* a program that has set its own keeps it */
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* The two ends of a connection as the system would make it: `to` may be 0.0.0.0, for example.
 * Nothing is sent: ip(7). */
static int find_ends(const struct sockaddr *to, socklen_t size, struct connection *ends)
{
    struct sockaddr_storage own, peer;
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    int probe = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int is_found = probe >= 0 && !syscall(SYS_connect, probe, to, size) &&
                   !getsockname(probe, (struct sockaddr *)&own, &own_size) &&
                   !getpeername(probe, (struct sockaddr *)&peer, &peer_size) &&
                   to_endpoint(&own, &ends->own) && to_endpoint(&peer, &ends->peer);
    if (probe >= 0)
        close(probe);
    return is_found;
}

/* Returns whether a connection stays on this machine. To 127.0.1.1, it comes from 127.0.0.1. */
static int is_local(const struct connection *ends)
{
    const struct in6_addr *to = &ends->peer.address;
    return !memcmp(&ends->own.address, to, sizeof *to) ||
           (IN6_IS_ADDR_V4MAPPED(to) && to->s6_addr[12] == IN_LOOPBACKNET);
}

static int bind_to_port(int socket, int family, unsigned port)
{
    int on = 1;
    struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on))
        return -1;
    if (family == AF_INET)
        return bind(socket, (struct sockaddr *)&ipv4, sizeof ipv4);
    return bind(socket, (struct sockaddr *)&ipv6, sizeof ipv6);
}

/* Returns a socket whose name no other process gets while it is open, or -1. */
static int claim_port(unsigned port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int size = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "tfdeploy-port-%u", port);
    if (claim >= 0 && bind(claim, (struct sockaddr *)&name,
                           offsetof(struct sockaddr_un, sun_path) + 1 + size)) {
        close(claim);
        return -1;
    }
    return claim;
}

/* Sets the port of the own end to one of `ports` from which there is no connection to the peer yet.
 * Returns 0 if there is none. Of two processes that connect to one server at the same moment, the
 * second may not connect from the port of the first, so each claims its port first, and closes
 * `claim` when it is connected. Another user can take the names of claims, but not the ports: then
 * the second round does without. */
static int choose_port(struct range ports, int kernel, struct connection *ends, int *claim)
{
    static unsigned used;
    unsigned count = ports.first ? ports.last - ports.first + 1 : 0, taken = 0;
    unsigned start = getpid() * 7 + __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
    *claim = -1;
    for (unsigned i = 0; i < (taken ? 2 * count : count); i++) {
        ends->own.port = ports.first + (start + i) % count;
        if (ends->own.port == ends->peer.port) /* it could connect to itself */
            continue;
        if (ask_kernel(kernel, &ends->own, &ends->peer) != UNKNOWN)
            continue;
        if (i < count && (*claim = claim_port(ends->own.port)) < 0) {
            taken++;
            continue;
        }
        if (ask_kernel(kernel, &ends->own, &ends->peer) == UNKNOWN)
            return 1;
        if (*claim >= 0)
            close(*claim);
        *claim = -1;
    }
    return 0;
}

static int is_bound(const struct endpoint *own)
{
    static const unsigned char any[4];
    const struct in6_addr *address = &own->address;
    int is_any = IN6_IS_ADDR_V4MAPPED(address) ? !memcmp(&address->s6_addr[12], any, sizeof any)
                                               : IN6_IS_ADDR_UNSPECIFIED(address);
    return own->port || !is_any;
}

/* Binds a socket that is about to connect to one of this user's ports, and returns its claim, or
 * -1. Without a free port the socket stays as it is: other hosts then refuse it. */
static int bind_to_own_port(int socket, const struct sockaddr *address, socklen_t size)
{
    struct sockaddr_storage bound;
    socklen_t bound_size = sizeof bound;
    struct endpoint own;
    struct connection ends;
    int claim, kernel;
    if (!(local_ports.first || source_ports.first) || get_option(socket, SO_TYPE) != SOCK_STREAM)
        return -1;
    if (getsockname(socket, (struct sockaddr *)&bound, &bound_size) || !to_endpoint(&bound, &own) ||
        is_bound(&own)) /* the program has bound it, or it connects already */
        return -1;
    if (!find_ends(address, size, &ends))
        return -1;
    kernel = open_kernel();
    struct range ports = source_ports, none = {0};
    if (is_local(&ends) && local_ports.first)
        ports = kernel < 0 ? none : local_ports; /* it can't say which ports are in use */
    if (choose_port(ports, kernel, &ends, &claim))
        bind_to_port(socket, address->sa_family, ends.own.port);
    if (kernel >= 0)
        close(kernel);
    return claim;
}

int connect(int socket, const struct sockaddr *address, socklen_t size)
{
    int claim = -1, error = errno;
    if (address && (address->sa_family == AF_INET || address->sa_family == AF_INET6)) {
        keep_alive(socket);
        claim = bind_to_own_port(socket, address, size);
    }
    int result = syscall(SYS_connect, socket, address, size);
    if (result)
        error = errno;
    if (claim >= 0)
        close(claim);
    errno = error;
    return result;
}
