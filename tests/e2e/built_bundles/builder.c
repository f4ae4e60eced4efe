// A builder and an ONNX parser for the stub of TensorRT (engine/src/tensorrt/tests/stub), which builds one and the same engine of every
// model. The variable STUB_BUILD names a folder of the test:
//   plan     the lines of the engine
//   refuse   if it is there, nothing is built
//   wait     if it is there, the build never ends
//   said     the builder adds a line for each build: its nice value, its policy, its limit of memory, whether it had timings

#include <limits.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

struct plain {
    const void **vtable;
    struct object object;
    char *bytes;
    size_t length;
};

static int64_t nothing(void) { return 0; }
static int64_t yes(void) { return 1; }

static const void *builder_table[64], *config_table[64], *network_table[64], *memory_table[64], *timing_table[64], *parser_table[64];

static struct object *plain(const void **table) {
    struct plain *made = calloc(1, sizeof *made);
    made->vtable = table;
    return object_of(made, &made->object);
}

static FILE *of_test(const char *name, const char *mode) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", getenv("STUB_BUILD"), name);
    return fopen(path, mode);
}

static _Bool is_there(const char *name) {
    FILE *file = of_test(name, "r");
    if (file)
        fclose(file);
    return file != NULL;
}

static void *memory_data(struct plain *self) { return self->bytes; }
static size_t memory_size_of(struct plain *self) { return self->length; }

static struct object *memory(const char *bytes, size_t length) {
    struct object *made = plain(memory_table);
    struct plain *memory = made->implementation;
    memory->bytes = malloc(length);
    memory->length = length;
    memcpy(memory->bytes, bytes, length);
    return made;
}

static size_t timings;
static struct object *create_network(void) { return plain(network_table); }
static struct object *create_config(void) { return plain(config_table); }
static struct object *create_timings(void *self, const void *start, size_t length) {
    (void)self; (void)start;
    timings = timings ? timings : length;
    return plain(timing_table);
}
static struct object *write_timings(void) { return memory("timings", 7); }

static struct object *build(void) {
    while (is_there("wait"))
        usleep(10000);
    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    FILE *said = of_test("said", "a");
    fprintf(said, "nice %d, policy %d, limited %d, timings %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
            limit.rlim_cur != RLIM_INFINITY, timings > 0);
    fclose(said);
    if (is_there("refuse"))
        return NULL;
    char plan[4096] = "ftrt";
    plan[24] = 10, plan[25] = 3, plan[26] = VERSION % 100;
    FILE *lines = of_test("plan", "r");
    size_t length = 64 + fread(plan + 64, 1, sizeof plan - 64, lines);
    fclose(lines);
    return memory(plan, length);
}

struct object *createInferBuilder_INTERNAL(void *logger, int version) {
    (void)logger; (void)version;
    for (int i = 0; i < 64; i++)
        builder_table[i] = config_table[i] = network_table[i] = memory_table[i] = timing_table[i] = (const void *)nothing;
    SET(builder_table, VBuilder_createNetworkV2, create_network)
    SET(builder_table, VBuilder_createBuilderConfig, create_config)
    SET(builder_table, VBuilder_buildSerializedNetwork, build)
    SET(config_table, VBuilderConfig_createTimingCache, create_timings)
    SET(config_table, VBuilderConfig_setTimingCache, yes)
    SET(memory_table, VHostMemory_data, memory_data)
    SET(memory_table, VHostMemory_size, memory_size_of)
    SET(timing_table, VTimingCache_serialize, write_timings)
    SET(timing_table, VTimingCache_combine, yes)
    return plain(builder_table);
}

// The methods of a parser are its own, not those of an implementation.
int getNvOnnxParserVersion(void) { return VERSION; }
static void delete_parser(void *self) { free(self); }
void *createNvOnnxParser_INTERNAL(void *network, void *logger, int version) {
    (void)network; (void)logger; (void)version;
    for (int i = 0; i < 64; i++)
        parser_table[i] = (const void *)nothing;
    parser_table[0] = (const void *)yes;
    parser_table[9] = (const void *)delete_parser;
    struct object *parser = calloc(1, sizeof *parser);
    parser->vtable = parser_table;
    return parser;
}
