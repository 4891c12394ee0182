/* How many calls a second Debian's libnfs makes: raw asynchronous NFSv3 calls on a mounted context, closed loop.
 *
 *   cc -O2 -o libnfs_bench libnfs_bench.c -lnfs
 *   ./libnfs_bench 'nfs://127.0.0.1/x?version=3&nfsport=PORT&mountport=PORT' null|getattr|sfs97 SECONDS DEPTH...
 *
 * Against a null responder only: the calls carry an invented handle. One line for each depth: mix, depth, calls a second. The sfs97 mix is the one of benches/bare_loop/mix.rs.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-nfs.h>

enum { IO_BYTES = 8192, ROUND = 99, STEP = 37 };

enum op { NUL, GETATTR, LOOKUP, READ, WRITE, READLINK, READDIR, CREATE, REMOVE, FSSTAT, SETATTR, READDIRPLUS, ACCESS,
    COMMIT };

static const struct { enum op op; int percent; } sfs97[] = {
    { LOOKUP, 27 }, { READ, 18 }, { WRITE, 9 }, { GETATTR, 11 }, { READLINK, 7 }, { READDIR, 2 }, { CREATE, 1 },
    { REMOVE, 1 }, { FSSTAT, 1 }, { SETATTR, 1 }, { READDIRPLUS, 9 }, { ACCESS, 7 }, { COMMIT, 5 },
};

static struct rpc_context *rpc;
static nfs_fh3 handle;
static char payload[IO_BYTES];
static enum op calls[ROUND];
static int calls_len, next_call;
static uint64_t answered;
static int running, in_flight;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void send_next(void);

static void on_reply(struct rpc_context *context, int status, void *data, void *private_data)
{
    (void)context, (void)data, (void)private_data;
    if (status != RPC_STATUS_SUCCESS) {
        fprintf(stderr, "libnfs_bench: a call failed with RPC status %d\n", status);
        exit(1);
    }
    answered++;
    in_flight--;
    if (running)
        send_next();
}

static void send_next(void)
{
    diropargs3 place = { .dir = handle, .name = "file-000123" };
    int failed = 0;
    enum op op = calls[next_call];
    next_call = next_call + 1 == calls_len ? 0 : next_call + 1;
    switch (op) {
    case NUL:
        failed = rpc_nfs3_null_async(rpc, on_reply, NULL);
        break;
    case GETATTR: {
        GETATTR3args a = { .object = handle };
        failed = rpc_nfs3_getattr_async(rpc, on_reply, &a, NULL);
        break;
    }
    case LOOKUP: {
        LOOKUP3args a = { .what = place };
        failed = rpc_nfs3_lookup_async(rpc, on_reply, &a, NULL);
        break;
    }
    case READ: {
        READ3args a = { .file = handle, .offset = 0, .count = IO_BYTES };
        failed = rpc_nfs3_read_async(rpc, on_reply, &a, NULL);
        break;
    }
    case WRITE: {
        WRITE3args a = { .file = handle, .offset = 0, .count = IO_BYTES, .stable = UNSTABLE };
        a.data.data_len = IO_BYTES;
        a.data.data_val = payload;
        failed = rpc_nfs3_write_async(rpc, on_reply, &a, NULL);
        break;
    }
    case READLINK: {
        READLINK3args a = { .symlink = handle };
        failed = rpc_nfs3_readlink_async(rpc, on_reply, &a, NULL);
        break;
    }
    case READDIR: {
        READDIR3args a = { .dir = handle, .count = 4096 };
        failed = rpc_nfs3_readdir_async(rpc, on_reply, &a, NULL);
        break;
    }
    case CREATE: {
        CREATE3args a = { .where = place };
        failed = rpc_nfs3_create_async(rpc, on_reply, &a, NULL);
        break;
    }
    case REMOVE: {
        REMOVE3args a = { .object = place };
        failed = rpc_nfs3_remove_async(rpc, on_reply, &a, NULL);
        break;
    }
    case FSSTAT: {
        FSSTAT3args a = { .fsroot = handle };
        failed = rpc_nfs3_fsstat_async(rpc, on_reply, &a, NULL);
        break;
    }
    case SETATTR: {
        SETATTR3args a = { .object = handle };
        a.new_attributes.mode.set_it = 1;
        a.new_attributes.mode.set_mode3_u.mode = 0644;
        failed = rpc_nfs3_setattr_async(rpc, on_reply, &a, NULL);
        break;
    }
    case READDIRPLUS: {
        READDIRPLUS3args a = { .dir = handle, .dircount = 1024, .maxcount = 4096 };
        failed = rpc_nfs3_readdirplus_async(rpc, on_reply, &a, NULL);
        break;
    }
    case ACCESS: {
        ACCESS3args a = { .object = handle, .access = 0x3f };
        failed = rpc_nfs3_access_async(rpc, on_reply, &a, NULL);
        break;
    }
    case COMMIT: {
        COMMIT3args a = { .file = handle };
        failed = rpc_nfs3_commit_async(rpc, on_reply, &a, NULL);
        break;
    }
    }
    if (failed) {
        fprintf(stderr, "libnfs_bench: cannot queue a call: %s\n", rpc_get_error(rpc));
        exit(1);
    }
    in_flight++;
}

static void serve(void)
{
    struct pollfd fd = { .fd = rpc_get_fd(rpc), .events = (short)rpc_which_events(rpc) };
    if (poll(&fd, 1, 1000) < 0 || rpc_service(rpc, fd.revents) < 0) {
        fprintf(stderr, "libnfs_bench: %s\n", rpc_get_error(rpc));
        exit(1);
    }
}

static void choose(const char *mix)
{
    if (strcmp(mix, "sfs97") != 0) {
        calls[0] = strcmp(mix, "null") == 0 ? NUL : GETATTR;
        calls_len = 1;
        return;
    }
    enum op sorted[ROUND];
    int len = 0;
    for (size_t i = 0; i < sizeof sfs97 / sizeof *sfs97; i++)
        for (int j = 0; j < sfs97[i].percent; j++)
            sorted[len++] = sfs97[i].op;
    for (int i = 0; i < len; i++)
        calls[i] = sorted[i * STEP % len];
    calls_len = len;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: %s URL null|getattr|sfs97 SECONDS DEPTH...\n", argv[0]);
        return 2;
    }
    struct nfs_context *nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(nfs, argv[1]);
    if (url == NULL || nfs_mount(nfs, url->server, url->path) != 0) {
        fprintf(stderr, "libnfs_bench: %s\n", nfs_get_error(nfs));
        return 1;
    }
    rpc = nfs_get_rpc_context(nfs);
    /* A null responder takes any handle, and libnfs 4 does not hand out the root's. */
    static char handle_bytes[32] = "any";
    handle.data.data_len = sizeof handle_bytes;
    handle.data.data_val = handle_bytes;
    choose(argv[2]);
    double seconds = atof(argv[3]);
    for (int i = 4; i < argc; i++) {
        int depth = atoi(argv[i]);
        running = 1;
        for (int j = 0; j < depth; j++)
            send_next();
        double warm_until = now() + seconds / 10;
        while (now() < warm_until)
            serve();
        double start = now();
        uint64_t before = answered;
        while (now() < start + seconds)
            serve();
        printf("libnfs                tcp  %-7s%6d outstanding %12.0f calls/s\n", argv[2], depth,
            (answered - before) / (now() - start));
        fflush(stdout);
        running = 0;
        while (in_flight > 0)
            serve();
    }
    nfs_destroy_url(url);
    nfs_destroy_context(nfs);
    return 0;
}
