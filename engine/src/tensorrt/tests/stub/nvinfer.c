// A TensorRT whose engines are a few lines of text, run on the host's memory. The test puts the version (VERSION), the type of
// sizes (SIZE) and the slot of each method (CLASS_method; -1 where the version lacks it) in front of this.
//
// An engine's file has 64 bytes of header, and then lines:
//   tensor NAME MODE TYPE ON_HOST SIZES...      MODE 1: input, 2: output; -1: an open size
//   limits NAME PROFILE WHICH SIZES...          WHICH 0: smallest, 1: best, 2: largest
// or the one line `refuse REASON`. The header has the version that built it, and no other runs it. An output's open size is that of the first input's same axis. A run writes, to each element of
// each output, twice the element of the first input that has the same number, modulo its length.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t count;
    SIZE sizes[8];
} dims;

struct object {
    const void **vtable;
    void *implementation;
};

struct tensor {
    char name[32];
    int mode, type, on_host;
    dims shape, limits[4][3];
};

// What a method's `this` points to.
struct engine {
    const void **vtable;
    struct object object;
    struct tensor tensors[8];
    int count, profiles;
};

struct context {
    const void **vtable;
    struct object object;
    struct engine *engine;
    int profile;
    dims shapes[8];
    void *addresses[8];
    void *recorder;
};

struct runtime {
    const void **vtable;
    struct object object;
    void *recorder;
};

static int alive;
int stub_objects(void) { return alive; }

static void complete(void *self) { (void)self; }
static void deleting(struct object *self) {
    free(self->implementation);
    alive--;
}
static const void *own_table[2] = {(void *)complete, (void *)deleting};

static void unexpected(void) {
    fprintf(stderr, "a method was called that the stub does not have\n");
    abort();
}

static const void *runtime_table[64], *engine_table[64], *context_table[64];
#define SET(table, slot, function)                \
    if ((slot) >= 0)                              \
        table[(slot)] = (const void *)(function);

static void report(void *recorder, const char *text) {
    if (recorder)
        ((char (*)(void *, int32_t, const char *))(*(const void ***)recorder)[REPORT_ERROR])(recorder, 3, text);
}

static struct object *object_of(void *implementation, struct object *object) {
    object->vtable = own_table;
    object->implementation = implementation;
    alive++;
    return object;
}

static int find(struct engine *self, const char *name) {
    for (int i = 0; i < self->count; i++)
        if (!strcmp(self->tensors[i].name, name))
            return i;
    fprintf(stderr, "there is no tensor %s\n", name);
    abort();
}

// --- contexts

static _Bool set_input_shape(struct context *self, const char *name, const dims *shape) {
    int index = find(self->engine, name);
    struct tensor *tensor = &self->engine->tensors[index];
    for (int i = 0; i < shape->count; i++) {
        SIZE size = shape->sizes[i];
        _Bool fixed = tensor->shape.sizes[i] != -1;
        dims *limits = tensor->limits[self->profile];
        if (fixed ? size != tensor->shape.sizes[i] : size < limits[0].sizes[i] || size > limits[2].sizes[i]) {
            report(self->recorder, "the shape is outside of the profile");
            return 0;
        }
    }
    self->shapes[index] = *shape;
    return 1;
}

static dims context_shape(struct context *self, const char *name) {
    int index = find(self->engine, name);
    dims shape = self->shapes[index];
    if (self->engine->tensors[index].mode == 2) {
        shape = self->engine->tensors[index].shape;
        for (int i = 0; i < shape.count; i++)
            if (shape.sizes[i] == -1)
                shape.sizes[i] = self->shapes[0].sizes[i];
    }
    return shape;
}

static int32_t infer_shapes(struct context *self, int32_t most, const char **missing) {
    int32_t count = 0;
    for (int i = 0; i < self->engine->count; i++)
        if (self->engine->tensors[i].mode == 1 && !self->shapes[i].count && count < most)
            missing[count++] = self->engine->tensors[i].name;
    return count;
}

static _Bool set_address(struct context *self, const char *name, void *address) {
    self->addresses[find(self->engine, name)] = address;
    return 1;
}

static _Bool set_profile(struct context *self, int32_t profile, void *stream) {
    (void)stream;
    if (profile < 0 || profile >= self->engine->profiles)
        return 0;
    self->profile = profile;
    memset(self->shapes, 0, sizeof self->shapes);
    return 1;
}

static int64_t elements(dims shape) {
    int64_t product = 1;
    for (int i = 0; i < shape.count; i++)
        product *= shape.sizes[i];
    return product;
}

// The numbers of TensorRT's types: 0 float, 2 int8, 3 int32, 4 bool, 5 uint8, 8 int64.
static double load(const void *from, int type, int64_t at) {
    switch (type) {
    case 0: return ((const float *)from)[at];
    case 2: return ((const int8_t *)from)[at];
    case 3: return ((const int32_t *)from)[at];
    case 4:
    case 5: return ((const uint8_t *)from)[at];
    case 8: return ((const int64_t *)from)[at];
    }
    abort();
}

static void store(void *to, int type, int64_t at, double value) {
    switch (type) {
    case 0: ((float *)to)[at] = value; return;
    case 2: ((int8_t *)to)[at] = value; return;
    case 3: ((int32_t *)to)[at] = value; return;
    case 4: ((uint8_t *)to)[at] = value != 0; return;
    case 5: ((uint8_t *)to)[at] = value; return;
    case 8: ((int64_t *)to)[at] = value; return;
    }
    abort();
}

static _Bool enqueue(struct context *self, void *stream) {
    (void)stream;
    struct engine *engine = self->engine;
    for (int i = 0; i < engine->count; i++)
        if (!self->addresses[i]) {
            report(self->recorder, "a tensor has no address");
            return 0;
        }
    int64_t given = elements(self->shapes[0]);
    for (int i = 0; i < engine->count; i++) {
        struct tensor *tensor = &engine->tensors[i];
        int64_t count = tensor->mode == 2 ? elements(context_shape(self, tensor->name)) : 0;
        for (int64_t at = 0; at < count; at++)
            store(self->addresses[i], tensor->type, at, 2 * load(self->addresses[0], engine->tensors[0].type, at % given));
    }
    return 1;
}

static void set_context_recorder(struct context *self, void *recorder) { self->recorder = recorder; }

// --- engines

static int32_t io_tensors(struct engine *self) { return self->count; }
static const char *io_tensor_name(struct engine *self, int32_t index) { return self->tensors[index].name; }
static dims tensor_shape(struct engine *self, const char *name) { return self->tensors[find(self, name)].shape; }
static int32_t tensor_type(struct engine *self, const char *name) { return self->tensors[find(self, name)].type; }
static int32_t tensor_location(struct engine *self, const char *name) { return self->tensors[find(self, name)].on_host; }
static int32_t tensor_mode(struct engine *self, const char *name) { return self->tensors[find(self, name)].mode; }
static int32_t tensor_format(struct engine *self, const char *name) { (void)self; (void)name; return 0; }
static const char *tensor_format_text(struct engine *self, const char *name) { (void)self; (void)name; return "Row major"; }
static int32_t profiles(struct engine *self) { return self->profiles; }
static int64_t memory_size(struct engine *self) { (void)self; return 1024; }
static const char *engine_name(struct engine *self) { (void)self; return "stub"; }
static int32_t layers(struct engine *self) { (void)self; return 1; }
static _Bool implicit_batch(struct engine *self) { (void)self; return 0; }
static dims profile_shape(struct engine *self, const char *name, int32_t profile, int32_t which) {
    return self->tensors[find(self, name)].limits[profile][which];
}

static struct object *create_context(struct engine *self) {
    struct context *context = calloc(1, sizeof *context);
    context->vtable = context_table;
    context->engine = self;
    // Inputs without an open size have their shape already.
    for (int i = 0; i < self->count; i++) {
        struct tensor *tensor = &self->tensors[i];
        _Bool open = 0;
        for (int axis = 0; axis < tensor->shape.count; axis++)
            open |= tensor->shape.sizes[axis] == -1;
        if (!open)
            context->shapes[i] = tensor->shape;
    }
    return object_of(context, &context->object);
}

// --- the runtime

static dims sizes(const char *text) {
    dims found = {0};
    char *end;
    for (long size; size = strtol(text, &end, 10), end != text; text = end)
        found.sizes[found.count++] = size;
    return found;
}

static struct object *deserialize(struct runtime *self, const char *plan, size_t length) {
    struct engine *engine = calloc(1, sizeof *engine);
    char *text = strndup(plan + 64, length - 64), *rest = text;
    engine->vtable = engine_table;
    engine->profiles = 1;
    if (plan[26] != VERSION % 100) {
        report(self->recorder, "another version built the plan");
        free(engine);
        free(text);
        return NULL;
    }
    for (char *line; (line = strsep(&rest, "\n"));) {
        struct tensor *tensor = &engine->tensors[engine->count];
        int behind = 0, profile, which;
        char name[32];
        if (!strncmp(line, "refuse ", 7)) {
            report(self->recorder, line + 7);
            free(engine);
            free(text);
            return NULL;
        }
        if (sscanf(line, "tensor %31s %d %d %d %n", tensor->name, &tensor->mode, &tensor->type, &tensor->on_host, &behind) == 4) {
            tensor->shape = sizes(line + behind);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 3; j++)
                    tensor->limits[i][j] = tensor->shape;
            engine->count++;
        } else if (sscanf(line, "limits %31s %d %d %n", name, &profile, &which, &behind) == 3) {
            engine->tensors[find(engine, name)].limits[profile][which] = sizes(line + behind);
            if (profile >= engine->profiles)
                engine->profiles = profile + 1;
        }
    }
    free(text);
    return object_of(engine, &engine->object);
}

static void set_recorder(struct runtime *self, void *recorder) { self->recorder = recorder; }
static void set_host_code_allowed(struct runtime *self, _Bool yes) { (void)self; (void)yes; }

int getInferLibVersion(void) { return VERSION; }

struct object *createInferRuntime_INTERNAL(void *logger, int version) {
    (void)logger;
    if (version != VERSION)
        return NULL;
    for (int i = 0; i < 64; i++)
        runtime_table[i] = engine_table[i] = context_table[i] = (const void *)unexpected;
    SET(runtime_table, VRuntime_deserializeCudaEngine, deserialize)
    SET(runtime_table, VRuntime_setErrorRecorder, set_recorder)
    SET(runtime_table, VRuntime_setEngineHostCodeAllowed, set_host_code_allowed)
    SET(engine_table, VCudaEngine_getNbIOTensors, io_tensors)
    SET(engine_table, VCudaEngine_getIOTensorName, io_tensor_name)
    SET(engine_table, VCudaEngine_getTensorShape, tensor_shape)
    SET(engine_table, VCudaEngine_getTensorDataType, tensor_type)
    SET(engine_table, VCudaEngine_getTensorLocation, tensor_location)
    SET(engine_table, VCudaEngine_getTensorIOMode, tensor_mode)
    SET(engine_table, VCudaEngine_getTensorFormat, tensor_format)
    SET(engine_table, VCudaEngine_getTensorFormatDesc, tensor_format_text)
    SET(engine_table, VCudaEngine_getProfileShape, profile_shape)
    SET(engine_table, VCudaEngine_getNbOptimizationProfiles, profiles)
    SET(engine_table, VCudaEngine_getDeviceMemorySize, memory_size)
    SET(engine_table, VCudaEngine_getDeviceMemorySizeV2, memory_size)
    SET(engine_table, VCudaEngine_createExecutionContext, create_context)
    SET(engine_table, VCudaEngine_getName, engine_name)
    SET(engine_table, VCudaEngine_getNbLayers, layers)
    SET(engine_table, VCudaEngine_hasImplicitBatchDimension, implicit_batch)
    SET(context_table, VExecutionContext_setTensorAddress, set_address)
    SET(context_table, VExecutionContext_setInputShape, set_input_shape)
    SET(context_table, VExecutionContext_getTensorShape, context_shape)
    SET(context_table, VExecutionContext_inferShapes, infer_shapes)
    SET(context_table, VExecutionContext_enqueueV3, enqueue)
    SET(context_table, VExecutionContext_setOptimizationProfileAsync, set_profile)
    SET(context_table, VExecutionContext_setErrorRecorder, set_context_recorder)
    struct runtime *runtime = calloc(1, sizeof *runtime);
    runtime->vtable = runtime_table;
    return object_of(runtime, &runtime->object);
}
