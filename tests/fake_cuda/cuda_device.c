/* What devices are; names and texts of results. */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

API CUresult cuDriverGetVersion(int *version) {
    if (!version)
        return INVALID_VALUE;
    *version = (int)setting("FAKE_CUDA_VERSION", 13000); /* may be asked before cuInit */
    return OK;
}

API CUresult cuDeviceGetCount(int *devices) {
    ENTER();
    if (!devices)
        return leave(INVALID_VALUE);
    *devices = g_devices;
    return leave(OK);
}

bool device_is(CUdevice dev) { return dev >= 0 && dev < g_devices; }

API CUresult cuDeviceGet(CUdevice *dev, int ordinal) {
    ENTER();
    if (!dev)
        return leave(INVALID_VALUE);
    if (!device_is(ordinal))
        return leave(INVALID_DEVICE);
    *dev = ordinal;
    return leave(OK);
}

API CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    ENTER();
    if (!name || len <= 0)
        return leave(INVALID_VALUE);
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    snprintf(name, (size_t)len, "Stand-in GPU %d", dev);
    return leave(OK);
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    ENTER();
    if (!bytes)
        return leave(INVALID_VALUE);
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    *bytes = g_arena[dev].size;
    return leave(OK);
}

/* Domain, bus, device: the dev-th of FAKE_CUDA_PCI="0000:00:04.0,..." (to give it a NUMA node), or 0000:10+dev:00. */
static void pci(int dev, unsigned at[3]) {
    const char *list = getenv("FAKE_CUDA_PCI");
    for (int i = 0; list && i < dev; i++) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (!list || sscanf(list, "%x:%x:%x", &at[0], &at[1], &at[2]) != 3) {
        at[0] = at[2] = 0;
        at[1] = 0x10 + (unsigned)dev;
    }
}

/* FAKE_CUDA_ATTRIBUTES="99=0,..." changes answers. */
static bool ordered_attribute(int *value, int attribute) {
    const char *list = getenv("FAKE_CUDA_ATTRIBUTES");
    while (list && *list) {
        int which, what;
        if (sscanf(list, "%d=%d", &which, &what) == 2 && which == attribute) {
            *value = what;
            return true;
        }
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return false;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice dev) {
    ENTER();
    if (!value || attribute <= 0 || attribute > 200)
        return leave(INVALID_VALUE);
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    unsigned at[3];
    pci(dev, at);
    if (ordered_attribute(value, attribute))
        return leave(OK);
    switch (attribute) {
    case 33: *value = (int)at[1]; break;
    case 34: *value = (int)at[2]; break;
    case 50: *value = (int)at[0]; break;
    case 1: *value = 1024; break;    /* threads a block */
    case 2: *value = 1024; break;    /* its x */
    case 10: *value = 32; break;     /* a warp's threads */
    case 16: *value = 132; break;    /* multiprocessors */
    case 40: *value = 2; break;      /* copy engines */
    case 75: *value = 9; break;      /* compute capability */
    case 91: *value = setting("FAKE_CUDA_SHIFTED", 0) == 0; break; /* registered memory by its host pointer */
    case 19:                         /* can map host memory */
    case 41:                         /* unified addressing */
    case 78:                         /* stream priorities */
    case 99:                         /* host registration */
    case 113:                        /* of memory that is only read */
    case 116:                        /* GPUDirect RDMA */
    case 122: case 123:              /* stream memory operations, second API */
    case 124: *value = 1; break;     /* dma-buf */
    default: *value = 0;             /* also 92 to 94, the first API of stream memory operations */
    }
    return leave(OK);
}

API CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev) {
    ENTER();
    if (!id || len < 13)
        return leave(INVALID_VALUE);
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    unsigned at[3];
    pci(dev, at);
    snprintf(id, (size_t)len, "%04X:%02X:%02X.0", at[0], at[1], at[2]);
    return leave(OK);
}

static const struct {
    CUresult rc;
    const char *name, *text;
} names[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult look_up(CUresult rc, const char **answer, bool name) {
    if (!answer)
        return INVALID_VALUE;
    *answer = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].rc == rc)
            *answer = name ? names[i].name : names[i].text;
    return *answer ? OK : INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult rc, const char **name) { return look_up(rc, name, true); }

API CUresult cuGetErrorString(CUresult rc, const char **text) { return look_up(rc, text, false); }
