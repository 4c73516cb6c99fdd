/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a remote write costs a user of libibverbs on soft-RoCE: an RDMA write and its completion,
 * between two queue pairs of a process. See opcost.h.
 */
#include "opcost.h"
#include "rxe_user.h"

#include <stdint.h>

#define SIZE      (1u << 20)
#define PORT      1
#define GID_INDEX 1 /* the IPv4 address */

static struct ibv_cq *cq;
static struct ibv_qp *qp[2];
static struct ibv_mr *from, *to;

static void qp_connect(struct ibv_qp *one, const struct ibv_qp *other, const union ibv_gid *gid)
{
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = RXE_ACCESS};
    struct ibv_ah_attr route = {.is_global = 1,
                                .port_num  = PORT,
                                .grh = {.dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 1}};
    struct ibv_qp_attr rtr   = {.qp_state           = IBV_QPS_RTR,
                                .path_mtu           = IBV_MTU_1024,
                                .dest_qp_num        = other->qp_num,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer      = 12,
                                .ah_attr            = route};
    struct ibv_qp_attr rts   = {.qp_state = IBV_QPS_RTS, .timeout = 14, .max_rd_atomic = 1};

    rts.retry_cnt = 7;
    rts.rnr_retry = 7;
    MUST(ibv_modify_qp(one, &init,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    MUST(ibv_modify_qp(one, &rtr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    MUST(ibv_modify_qp(one, &rts,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void rxe_setup(void)
{
    struct ibv_context *context = rxe_open();
    struct ibv_pd      *pd      = ibv_alloc_pd(context);
    union ibv_gid       gid;

    MUST(pd != NULL);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    MUST(cq != NULL);
    for (int i = 0; i < 2; ++i) {
        struct ibv_qp_init_attr attr = {
            .send_cq = cq,
            .recv_cq = cq,
            .qp_type = IBV_QPT_RC,
            .cap     = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

        qp[i] = ibv_create_qp(pd, &attr);
        MUST(qp[i] != NULL);
    }
    MUST(ibv_query_gid(context, PORT, GID_INDEX, &gid) == 0);
    qp_connect(qp[0], qp[1], &gid);
    qp_connect(qp[1], qp[0], &gid);
    from = ibv_reg_mr(pd, calloc(1, SIZE), SIZE, RXE_ACCESS);
    to   = ibv_reg_mr(pd, calloc(1, SIZE), SIZE, RXE_ACCESS);
    MUST(from != NULL && to != NULL);
}

static void rxe_write(size_t size)
{
    struct ibv_sge      sge     = {(uintptr_t)from->addr, (uint32_t)size, from->lkey};
    struct ibv_send_wr  request = {.sg_list    = &sge,
                                   .num_sge    = 1,
                                   .opcode     = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma    = {(uintptr_t)to->addr, to->rkey}};
    struct ibv_send_wr *bad;
    struct ibv_wc       wc;
    int                 found;

    MUST(ibv_post_send(qp[0], &request, &bad) == 0);
    do {
        found = ibv_poll_cq(cq, 1, &wc);
    } while (found == 0);
    MUST(found == 1 && wc.status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
    return opcost(argc, argv, rxe_setup, rxe_write);
}
