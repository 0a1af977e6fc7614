/* A provider of FIDO keys for ssh (PROTOCOL.u2f, sk-api.h version 10): software, no device. A program,
   $SECURITY_KEY, makes the keys and signs; it gets and prints hexadecimal words. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 32
#define SIGNATURE_BYTES 64
#define ED25519 1
#define ERROR -1

struct sk_enroll_response {
    uint8_t flags;
    uint8_t *public_key; size_t public_key_len;
    uint8_t *key_handle; size_t key_handle_len;
    uint8_t *signature; size_t signature_len;
    uint8_t *attestation_cert; size_t attestation_cert_len;
    uint8_t *authdata; size_t authdata_len;
};

struct sk_sign_response {
    uint8_t flags;
    uint32_t counter;
    uint8_t *sig_r; size_t sig_r_len;
    uint8_t *sig_s; size_t sig_s_len;
};

static void append_hex(char *line, const uint8_t *data, size_t size) {
    strcat(line, " ");
    for (size_t i = 0; i < size; i++) sprintf(line + strlen(line), "%02x", data[i]);
}

/* Run a command; read `size` bytes that it prints in hexadecimal. */
static int run(const char *line, uint8_t *out, size_t size) {
    FILE *pipe = popen(line, "r");
    unsigned byte;
    size_t count = 0;
    if (pipe == NULL) return ERROR;
    while (count < size && fscanf(pipe, "%2x", &byte) == 1) out[count++] = (uint8_t)byte;
    return pclose(pipe) == 0 && count == size ? 0 : ERROR;
}

uint32_t sk_api_version(void) { return 0x000a0000; }

int sk_enroll(uint32_t alg, const uint8_t *challenge, size_t challenge_len, const char *application,
              uint8_t flags, const char *pin, void **options, struct sk_enroll_response **response) {
    uint8_t keys[2 * KEY_BYTES];
    char line[4096] = "";
    struct sk_enroll_response *made = calloc(1, sizeof *made);
    snprintf(line, sizeof line, "%s enroll", getenv("SECURITY_KEY"));
    if (alg != ED25519 || made == NULL || run(line, keys, sizeof keys)) return ERROR;
    made->flags = flags;
    made->public_key = malloc(KEY_BYTES);
    made->key_handle = malloc(KEY_BYTES);
    made->signature = calloc(1, SIGNATURE_BYTES);
    memcpy(made->public_key, keys, KEY_BYTES);
    memcpy(made->key_handle, keys + KEY_BYTES, KEY_BYTES);
    made->public_key_len = made->key_handle_len = KEY_BYTES;
    made->signature_len = SIGNATURE_BYTES;
    *response = made;
    return 0;
}

int sk_sign(uint32_t alg, const uint8_t *data, size_t data_len, const char *application,
            const uint8_t *key_handle, size_t key_handle_len, uint8_t flags, const char *pin,
            void **options, struct sk_sign_response **response) {
    char *line = calloc(1, 4096 + 2 * data_len);
    struct sk_sign_response *made = calloc(1, sizeof *made);
    if (alg != ED25519 || line == NULL || made == NULL) return ERROR;
    sprintf(line, "%s sign", getenv("SECURITY_KEY"));
    append_hex(line, (const uint8_t *)application, strlen(application));
    append_hex(line, &flags, 1);
    append_hex(line, data, data_len);
    append_hex(line, key_handle, key_handle_len);
    made->flags = flags;
    made->counter = 1;
    made->sig_r = malloc(SIGNATURE_BYTES);
    made->sig_r_len = SIGNATURE_BYTES;
    if (run(line, made->sig_r, SIGNATURE_BYTES)) return ERROR;
    *response = made;
    free(line);
    return 0;
}

int sk_load_resident_keys(const char *pin, void **options, void ***keys, size_t *count) {
    *keys = NULL;
    *count = 0;
    return 0;
}
