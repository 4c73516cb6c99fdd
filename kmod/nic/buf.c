// SPDX-License-Identifier: GPL-2.0-only
/*
 * DMA memory that users map. dma_alloc_coherent() may give vmalloc addresses, or memory that only
 * dma_mmap_coherent() can map, which is of no use to a fault handler: so pages, on platforms
 * where DMA to pages is coherent.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>

#include "nic.h"

/*
 * Device and CPUs see each other's writes to memory without being told: no cache in between and no
 * bounce buffer. Of what dma_alloc_pages() gave, or was mapped after angara_device_check_dma().
 * Without an IOMMU, dma_need_sync() tells of an address, or of all of them where a hypervisor maps;
 * with one it always says yes, but there only what is untrusted is bounced.
 */
bool angara_dma_is_coherent(struct angara_device *adev, dma_addr_t addr)
{
	struct device *dev = &adev->pdev->dev;

	if (!dev_is_dma_coherent(dev) || adev->pdev->untrusted)
		return false;
	return device_iommu_mapped(dev) || !dma_need_sync(dev, addr);
}

int angara_buf_alloc(struct angara_device *adev, struct angara_buf *buf, size_t size)
{
	struct device *dev = &adev->pdev->dev;

	size = PAGE_ALIGN(size);
	buf->page = dma_alloc_pages(dev, size, &buf->dma, DMA_BIDIRECTIONAL, ANGARA_GFP_USER);
	if (!buf->page)
		return -ENOMEM;
	buf->size = size;
	/* It can't fail here, but dma-debug complains of mappings that weren't asked about. */
	WARN_ON_ONCE(dma_mapping_error(dev, buf->dma));
	return 0;
}

void angara_buf_free(struct angara_device *adev, struct angara_buf *buf)
{
	if (!buf->page)
		return;
	dma_free_pages(&adev->pdev->dev, buf->size, buf->page, buf->dma, DMA_BIDIRECTIONAL);
	buf->page = NULL;
}

/* It holds for the device: one page stands for all. */
int angara_buf_check(struct angara_device *adev)
{
	struct angara_buf buf;
	int ret;

	ret = angara_buf_alloc(adev, &buf, PAGE_SIZE);
	if (ret)
		return ret;
	if (!angara_dma_is_coherent(adev, buf.dma)) {
		dev_err(&adev->pdev->dev, "DMA isn't coherent here: not supported\n");
		ret = -EOPNOTSUPP;
	}
	angara_buf_free(adev, &buf);
	return ret;
}
