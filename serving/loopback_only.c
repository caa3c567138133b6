/* Preloaded into engine processes that are to answer on loopback only: a TCP socket that would listen on every address
 * listens on loopback. Mooncake's handshake and data ports and torch's store take no address, so nothing else reaches them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

typedef int (*bind_function)(int, const struct sockaddr *, socklen_t);

int bind(int socket, const struct sockaddr *address, socklen_t length) {
    static bind_function next;
    struct sockaddr_storage changed;
    int type = 0, v6_only = 0;
    socklen_t size = sizeof type;

    if (!next) next = (bind_function)dlsym(RTLD_NEXT, "bind");
    if (!address || length > sizeof changed || getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_STREAM)
        return next(socket, address, length);
    memcpy(&changed, address, length);
    if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&changed;
        if (v4->sin_addr.s_addr == htonl(INADDR_ANY)) v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&changed;
        size = sizeof v6_only;
        getsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &size);
        /* An IPv6 socket for everybody also serves IPv4, and 127.0.0.1 is what it is asked on. */
        if (IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) inet_pton(AF_INET6, v6_only ? "::1" : "::ffff:127.0.0.1", &v6->sin6_addr);
    }
    return next(socket, (struct sockaddr *)&changed, length);
}
